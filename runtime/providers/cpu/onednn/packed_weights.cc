#include "runtime/providers/cpu/onednn/packed_weights.h"

#include "runtime/providers/cpu/onednn/engine.h"

namespace onnxd::onednn {

Result<dnnl::memory> PackedWeights::InLayout(const dnnl::memory::desc& wanted,
                                             const dnnl::memory::desc& plain) {
  std::lock_guard lock(mutex_);
  for (const dnnl::memory& packed : packed_) {
    if (packed.get_desc() == wanted) return packed;
  }
  dnnl::memory result;
  ONNXD_RETURN_IF_ERROR(Guard([&] {
    dnnl::memory source = packed_.empty()
                              ? dnnl::memory(plain, Engine(), const_cast<void*>(original_.raw()))
                              : packed_.front();
    result = dnnl::memory(wanted, Engine());
    dnnl::reorder(source, result).execute(ThreadStream(), source, result);
    ThreadStream().wait();
  }));
  packed_.push_back(result);
  original_ = Tensor();
  return result;
}

}  // namespace onnxd::onednn
