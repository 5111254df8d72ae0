#include "runtime/providers/cpu/onednn/packed_weights.h"

#include <cstring>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/lazy_form.h"
#include "runtime/providers/cpu/onednn/engine.h"

namespace onnxd::onednn {
namespace {

constexpr std::string_view kFormPrefix = "onednn ";

// oneDNN's descriptor is a plain structure that it fills with zeros first.
std::string FormOf(const dnnl::memory::desc& layout) {
  std::string form = StrCat(kFormPrefix, dnnl_version()->hash, " ");
  form.append(reinterpret_cast<const char*>(&layout.data), sizeof(layout.data));
  return form;
}

// The layout of a form of ours, or an empty one.
dnnl::memory::desc LayoutOf(const std::string& form) {
  dnnl::memory::desc layout;
  if (form.starts_with(kFormPrefix) && form.size() > sizeof(layout.data)) {
    std::memcpy(&layout.data, form.data() + form.size() - sizeof(layout.data), sizeof(layout.data));
  }
  return layout;
}

dnnl::memory Wrap(const dnnl::memory::desc& layout, const Tensor& elements) {
  return dnnl::memory(layout, Engine(), const_cast<void*>(elements.raw()));
}

Result<Tensor> Reorder(const dnnl::memory::desc& from, const Tensor& elements,
                       const dnnl::memory::desc& to) {
  ONNXD_ASSIGN_OR_RETURN(
      Tensor result, Tensor::Create(DataType::kUint8, Shape{static_cast<int64_t>(to.get_size())}));
  ONNXD_RETURN_IF_ERROR(Guard([&] {
    dnnl::memory source = Wrap(from, elements), target = Wrap(to, result);
    dnnl::reorder(source, target).execute(ThreadStream(), source, target);
    ThreadStream().wait();
  }));
  return result;
}

}  // namespace

Result<dnnl::memory> PackedWeights::InLayout(const dnnl::memory::desc& wanted,
                                             const dnnl::memory::desc& plain) {
  std::lock_guard lock(mutex_);
  for (const auto& [packed, elements] : packed_) {
    if (packed.get_desc() == wanted) return packed;
  }
  const std::string form = FormOf(wanted);
  Tensor elements = weights_.FindForm(form);
  if (!elements.defined() && weights_.released()) {
    ONNXD_ASSIGN_OR_RETURN(elements, FromAnother(wanted));
    weights_.AddForm(form, elements);
  } else if (!elements.defined()) {
    ONNXD_ASSIGN_OR_RETURN(elements, weights_.InForm(form, [&](const Tensor& from) {
      return Reorder(plain, from, wanted);
    }));
  }
  weights_.Release();
  packed_.emplace_back(Wrap(wanted, elements), elements);
  return packed_.back().first;
}

Result<Tensor> PackedWeights::GetDerived(const std::string& form,
                                         FunctionRef<Result<Tensor>()> make) {
  std::lock_guard lock(mutex_);
  return DerivedForm(weights_, form, make);
}

// From a layout that exists: the plain elements are gone.
Result<Tensor> PackedWeights::FromAnother(const dnnl::memory::desc& wanted) const {
  if (!packed_.empty()) return Reorder(packed_[0].first.get_desc(), packed_[0].second, wanted);
  for (const auto& [form, elements] : weights_.forms()) {
    const dnnl::memory::desc layout = LayoutOf(form);
    if (layout.get_size() == elements.bytes() && layout.dims() == wanted.dims()) {
      return Reorder(layout, elements, wanted);
    }
  }
  return Internal("weights are in no layout that oneDNN can read");
}

}  // namespace onnxd::onednn
