#include <algorithm>
#include <optional>

#include "runtime/ops/convolution.h"
#include "runtime/optimizer/passes/passes.h"
#include "runtime/tensor/strides.h"

namespace onnxd {
namespace {

// The taps of one axis that meet the image somewhere: [first, last].
struct Taps {
  int64_t first, last;
};

Taps TapsThatMeet(const Window& window, size_t axis, int64_t extent) {
  const int64_t kernel = window.kernel[axis];
  const auto meets = [&](int64_t tap) {
    const int64_t offset = tap * window.dilations[axis] - window.pads_begin[axis];
    for (int64_t o = 0; o < window.output[axis]; ++o) {
      const int64_t at = o * window.strides[axis] + offset;
      if (at >= 0 && at < extent) return true;
    }
    return false;
  };
  Taps taps{0, kernel - 1};
  while (taps.first < taps.last && !meets(taps.first)) ++taps.first;
  while (taps.first < taps.last && !meets(taps.last)) --taps.last;
  return taps;
}

// Some taps of w[out, in, taps...].
Result<Tensor> Cropped(const Tensor& w, const std::vector<Taps>& taps) {
  Shape shape = w.shape();
  for (size_t axis = 0; axis < taps.size(); ++axis) {
    shape[static_cast<int>(axis) + 2] = taps[axis].last - taps[axis].first + 1;
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor result, Tensor::Create(DataType::kFloat, shape));
  const auto strides = DenseStrides(w.shape());
  float* to = result.mutable_data<float>();
  const auto copy = [&](auto&& self, int axis, const float* from) -> void {
    if (axis == shape.rank()) {
      *to++ = *from;
      return;
    }
    const int64_t first = axis < 2 ? 0 : taps[static_cast<size_t>(axis) - 2].first;
    for (int64_t i = 0; i < shape[axis]; ++i) {
      self(self, axis + 1, from + (first + i) * strides[static_cast<size_t>(axis)]);
    }
  };
  copy(copy, 0, w.data<float>());
  return result;
}

std::optional<std::vector<int64_t>> KnownExtents(const Graph& graph, ValueId id) {
  const auto& shape = graph.value(id).type.shape;
  if (!shape || shape->size() < 3) return std::nullopt;
  std::vector<int64_t> extents;
  for (size_t axis = 2; axis < shape->size(); ++axis) {
    if (!(*shape)[axis].known()) return std::nullopt;
    extents.push_back((*shape)[axis].value);
  }
  return extents;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "conv_padding"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!node.Is("Conv")) continue;
      ONNXD_ASSIGN_OR_RETURN(const bool cropped, TryCrop(graph, node));
      changed = changed || cropped;
    }
    return changed;
  }

 private:
  static Result<bool> TryCrop(Graph& graph, Node& node) {
    const auto weights = graph.initializers.find(node.inputs[1]);
    const auto extents = KnownExtents(graph, node.inputs[0]);
    if (!extents || weights == graph.initializers.end() ||
        weights->second.type() != DataType::kFloat ||
        weights->second.shape().rank() != static_cast<int>(extents->size()) + 2) {
      return false;
    }
    const auto& dims = weights->second.shape().dims();
    const auto window = PoolWindow(node, *extents, {dims.begin() + 2, dims.end()});
    if (!window.ok() || AreAll(window->kernel, 1)) return false;
    std::vector<Taps> taps;
    std::vector<int64_t> kernel, pads_begin, pads_end;
    for (size_t axis = 0; axis < extents->size(); ++axis) {
      const Taps kept = taps.emplace_back(TapsThatMeet(*window, axis, (*extents)[axis]));
      const int64_t step = window->dilations[axis];
      kernel.push_back(kept.last - kept.first + 1);
      pads_begin.push_back(window->pads_begin[axis] - kept.first * step);
      pads_end.push_back(window->pads_end[axis] - (window->kernel[axis] - 1 - kept.last) * step);
    }
    const auto negative = [](int64_t pad) { return pad < 0; };
    if (kernel == window->kernel || std::any_of(pads_begin.begin(), pads_begin.end(), negative) ||
        std::any_of(pads_end.begin(), pads_end.end(), negative)) {
      return false;
    }
    ONNXD_ASSIGN_OR_RETURN(const Tensor old, weights->second.Materialize());
    ONNXD_ASSIGN_OR_RETURN(Tensor made, Cropped(old, taps));
    node.attributes.Erase("auto_pad");
    node.attributes.Set("kernel_shape", std::move(kernel));
    pads_begin.insert(pads_begin.end(), pads_end.begin(), pads_end.end());
    node.attributes.Set("pads", std::move(pads_begin));
    node.inputs[1] =
        graph.AddInitializer(std::string(graph.value(node.inputs[1]).name) + "_cropped", made);
    return true;
  }
};

}  // namespace

const GraphPass* ConvPaddingCrop() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
