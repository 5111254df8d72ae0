#include "runtime/ops/resize.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"
#include "runtime/tensor/axes.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

Status CheckScale(const Node& node, double scale) {
  if (scale > 0 && scale < 1e9) return Status::Ok();
  return InvalidArgument(StrCat(Describe(node), ": a scale of ", scale, " is out of range"));
}

// One scale for all axes: the smallest or the largest that the sizes ask for.
Result<ResizeSizes> KeepAspectRatio(const Node& node, const std::vector<int64_t>& input,
                                    const std::vector<int64_t>& sizes, const std::vector<int>& axes,
                                    bool smallest, ResizeSizes out) {
  double scale = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto extent = static_cast<double>(input[static_cast<size_t>(axes[i])]);
    const double own = static_cast<double>(sizes[i]) / extent;
    scale = i == 0 ? own : smallest ? std::min(scale, own) : std::max(scale, own);
  }
  ONNXD_RETURN_IF_ERROR(CheckScale(node, scale));
  for (const int axis : axes) {
    const auto at = static_cast<size_t>(axis);
    out.scales[at] = scale;
    out.extents[at] = Truncated<int64_t>(std::floor(scale * static_cast<double>(input[at]) + 0.5));
  }
  return out;
}

Status Resize(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  const Node& node = context.node();
  ResizeRequest request;
  const size_t scales_operand = ResizeScalesOperand(node);
  if (const Tensor* scales = context.known(scales_operand);
      scales != nullptr && scales->type() == DataType::kFloat) {
    const auto elements = scales->elements<float>();
    request.scales.assign(elements.begin(), elements.end());
  }
  if (const auto sizes = context.known_ints(3)) request.sizes = *sizes;
  const auto concrete = ToConcrete(*shape);
  const bool attribute = node.attributes.Has("scales") || node.attributes.Has("height_scale");
  if (!concrete || (request.scales.empty() && request.sizes.empty() && !attribute)) {
    // Axes that the node does not touch keep their extents.
    ONNXD_ASSIGN_OR_RETURN(const auto axes, ResizeAxes(node, static_cast<int>(shape->size())));
    SymbolicShape out = *shape;
    for (size_t at = 0; at < axes.size(); ++at) {
      Dimension& dimension = out[static_cast<size_t>(axes[at])];
      const bool same = request.scales.size() == axes.size() && request.scales[at] == 1.0;
      if (!same) dimension = Dimension();
      if (request.sizes.size() == axes.size() && !node.attributes.Has("keep_aspect_ratio_policy") &&
          request.sizes[at] >= 0) {
        dimension = request.sizes[at];
      }
    }
    context.SetShape(0, std::move(out));
    return Status::Ok();
  }
  ONNXD_ASSIGN_OR_RETURN(const ResizeSizes sizes, SizesOfResize(node, concrete->dims(), request));
  context.SetShape(0, SymbolicShape(sizes.extents.begin(), sizes.extents.end()));
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {{"", "Resize", Resize}, {"", "Upsample", Resize}};

}  // namespace

size_t ResizeScalesOperand(const Node& node) { return node.since_version < 11 ? 1 : 2; }

Result<std::vector<int>> ResizeAxes(const Node& node, int rank) {
  ONNXD_ASSIGN_OR_RETURN(auto axes, NormalizeAxes(node.attributes.Ints("axes"), rank));
  if (axes.empty() && node.attributes.Has("height_scale")) {
    if (rank == 4) return std::vector<int>{2, 3};
    return InvalidArgument(StrCat(Describe(node), ": the input has rank ", rank, ", expected 4"));
  }
  for (int axis = 0; axes.empty() && axis < rank; ++axis) {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  return axes;
}

Result<ResizeSizes> SizesOfResize(const Node& node, const std::vector<int64_t>& input,
                                  const ResizeRequest& request) {
  ONNXD_ASSIGN_OR_RETURN(const auto axes, ResizeAxes(node, static_cast<int>(input.size())));
  ResizeSizes out{input, std::vector<double>(input.size(), 1.0)};
  if (!request.sizes.empty()) {
    if (request.sizes.size() != axes.size()) {
      return InvalidArgument(StrCat(Describe(node), ": sizes has ", request.sizes.size(),
                                    " entries for ", axes.size(), " axes"));
    }
    for (size_t i = 0; i < axes.size(); ++i) {
      const bool empty = input[static_cast<size_t>(axes[i])] == 0;
      if (request.sizes[i] < 0 || (empty && request.sizes[i] != 0)) {
        return InvalidArgument(StrCat(Describe(node), ": a size of ", request.sizes[i]));
      }
    }
    const std::string policy = node.attributes.String("keep_aspect_ratio_policy", "stretch");
    if (policy != "stretch") {
      return KeepAspectRatio(node, input, request.sizes, axes, policy == "not_larger",
                             std::move(out));
    }
    for (size_t i = 0; i < axes.size(); ++i) {
      const auto at = static_cast<size_t>(axes[i]);
      out.extents[at] = request.sizes[i];
      if (input[at] > 0) {
        out.scales[at] = static_cast<double>(request.sizes[i]) / static_cast<double>(input[at]);
      }
    }
    return out;
  }
  std::vector<double> scales = request.scales;
  if (scales.empty() && node.attributes.Has("height_scale")) {  // Upsample-1
    scales = {node.attributes.Float("height_scale", 1), node.attributes.Float("width_scale", 1)};
  }
  if (scales.empty()) {
    const auto attribute = node.attributes.Floats("scales");
    scales.assign(attribute.begin(), attribute.end());
  }
  if (scales.size() != axes.size() || input.size() < (axes.empty() ? 0u : 1u)) {
    return InvalidArgument(StrCat(Describe(node), ": scales has ", scales.size(), " entries for ",
                                  axes.size(), " axes"));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto at = static_cast<size_t>(axes[i]);
    if (at >= input.size()) return InvalidArgument(StrCat(Describe(node), ": rank below 4"));
    ONNXD_RETURN_IF_ERROR(CheckScale(node, scales[i]));
    const double extent = static_cast<double>(input[at]) * scales[i];
    if (extent > 1e15) return InvalidArgument(StrCat(Describe(node), ": the result is too large"));
    out.scales[at] = scales[i];
    out.extents[at] = static_cast<int64_t>(extent);
  }
  return out;
}

std::span<const InferenceRule> ResizeRules() { return kRules; }

}  // namespace onnxd
