#include "runtime/ops/reduction.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

Status Reduce(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  std::vector<int64_t> axes = context.attributes().Ints("axes");
  if (ReductionAxesAreInput(context.node()) && context.HasInput(1)) {
    const auto known = context.known_ints(1);
    if (!known) return Status::Ok();
    axes = *known;
  }
  const auto rank = static_cast<int>(shape->size());
  ONNXD_ASSIGN_OR_RETURN(const auto reduced, ReductionAxes(context.node(), axes, rank));
  const bool keep = context.attributes().Int("keepdims", 1) != 0;
  SymbolicShape out;
  for (int axis = 0; axis < rank; ++axis) {
    if (!std::binary_search(reduced.begin(), reduced.end(), axis)) {
      out.push_back((*shape)[static_cast<size_t>(axis)]);
    } else if (keep) {
      out.push_back(1);
    }
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status ArgReduce(InferenceContext& context) {
  context.SetElement(0, DataType::kInt64);
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(context.attributes().Int("axis", 0),
                                                       static_cast<int>(shape->size())));
  SymbolicShape out = *shape;
  if (context.attributes().Int("keepdims", 1) != 0) {
    out[static_cast<size_t>(axis)] = 1;
  } else {
    out.erase(out.begin() + axis);
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status TopK(InferenceContext& context) {
  context.SetElement(1, DataType::kInt64);
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(context.attributes().Int("axis", -1),
                                                       static_cast<int>(shape->size())));
  SymbolicShape out = *shape;
  Dimension k;
  if (context.version() < 10) {
    k = context.attributes().Int("k", 0);
  } else if (const auto known = context.known_ints(1); known && known->size() == 1) {
    k = (*known)[0];
    if ((*known)[0] < 0) return context.Fail("k is negative");
  }
  const Dimension& available = out[static_cast<size_t>(axis)];
  if (k.known() && available.known() && k.value > available.value) {
    return context.Fail(StrCat("k is ", k.value, ", the axis has ", available.value));
  }
  out[static_cast<size_t>(axis)] = k;
  context.SetShape(0, out);
  context.SetShape(1, out);
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "ArgMax", ArgReduce},       {"", "ArgMin", ArgReduce},  {"", "CumSum", SameShapeAsInput},
    {"", "ReduceL1", Reduce},        {"", "ReduceL2", Reduce},   {"", "ReduceLogSum", Reduce},
    {"", "ReduceLogSumExp", Reduce}, {"", "ReduceMax", Reduce},  {"", "ReduceMean", Reduce},
    {"", "ReduceMin", Reduce},       {"", "ReduceProd", Reduce}, {"", "ReduceSum", Reduce},
    {"", "ReduceSumSquare", Reduce}, {"", "TopK", TopK},
};

}  // namespace

bool ReductionAxesAreInput(const Node& node) {
  return node.since_version >= (node.op_type == "ReduceSum" ? 13 : 18);
}

Result<std::vector<int>> ReductionAxes(const Node& node, const std::vector<int64_t>& axes,
                                       int rank) {
  std::vector<int> out;
  if (axes.empty()) {
    if (node.attributes.Int("noop_with_empty_axes", 0) != 0) return out;
    for (int axis = 0; axis < rank; ++axis) out.push_back(axis);
    return out;
  }
  for (const int64_t axis : axes) {
    ONNXD_ASSIGN_OR_RETURN(const int normal, NormalizeAxis(axis, rank));
    out.push_back(normal);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::span<const InferenceRule> ReductionRules() { return kRules; }

}  // namespace onnxd
