// Linear quantisation and products of quantised tensors.
#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

// The attribute output_dtype, else the zero point's type, else `fallback`.
void SetOutputType(InferenceContext& context, DataType fallback) {
  const int64_t stated = context.attributes().Int("output_dtype", 0);
  if (IsDataType(stated)) {
    context.SetElement(0, static_cast<DataType>(stated));
  } else if (context.input(2).is_tensor()) {
    context.SetElement(0, context.input(2).element);
  } else if (context.input(0).is_tensor()) {
    context.SetElement(0, fallback);
  }
}

Status QuantizeLinear(InferenceContext& context) {
  SetOutputType(context, DataType::kUint8);
  return SameShapeAsInput(context);
}

Status DequantizeLinear(InferenceContext& context) {
  const int64_t stated = context.attributes().Int("output_dtype", 0);
  if (IsDataType(stated)) {
    context.SetElement(0, static_cast<DataType>(stated));
  } else if (context.version() >= 19 && context.input(1).is_tensor()) {
    context.SetElement(0, context.input(1).element);
  } else {
    context.SetElement(0, DataType::kFloat);
  }
  return SameShapeAsInput(context);
}

Status ContribDequantizeLinear(InferenceContext& context) {
  if (context.input(1).is_tensor()) context.SetElement(0, context.input(1).element);
  return SameShapeAsInput(context);
}

Status DynamicQuantizeLinear(InferenceContext& context) {
  ONNXD_RETURN_IF_ERROR(SameShapeAsInput(context));
  context.SetElement(0, DataType::kUint8);
  context.SetElement(1, DataType::kFloat);
  context.SetElement(2, DataType::kUint8);
  context.SetShape(1, {});
  context.SetShape(2, {});
  return Status::Ok();
}

// Numpy's rule for matrices at operands `a` and `b`.
Status Product(InferenceContext& context, size_t a, size_t b) {
  const SymbolicShape* left = context.shape(a);
  const SymbolicShape* right = context.shape(b);
  if (left == nullptr || right == nullptr) return Status::Ok();
  SymbolicShape x = *left, y = *right;
  if (x.empty() || y.empty()) return context.Fail("a scalar cannot be multiplied");
  const bool row = x.size() == 1, column = y.size() == 1;
  if (row) x.insert(x.begin(), 1);
  if (column) y.push_back(1);
  if (x.back().known() && y[y.size() - 2].known() && x.back().value != y[y.size() - 2].value) {
    return context.Fail(
        StrCat("shapes ", ToString(*left), " and ", ToString(*right), " cannot be multiplied"));
  }
  ONNXD_ASSIGN_OR_RETURN(SymbolicShape out, Broadcast(SymbolicShape(x.begin(), x.end() - 2),
                                                      SymbolicShape(y.begin(), y.end() - 2)));
  if (!row) out.push_back(x[x.size() - 2]);
  if (!column) out.push_back(y.back());
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status MatMulInteger(InferenceContext& context) {
  context.SetElement(0, DataType::kInt32);
  return Product(context, 0, 1);
}

Status QLinearMatMul(InferenceContext& context) {
  if (context.input(7).is_tensor()) context.SetElement(0, context.input(7).element);
  return Product(context, 0, 3);
}

constexpr InferenceRule kRules[] = {
    {"", "DequantizeLinear", DequantizeLinear},
    {"", "DynamicQuantizeLinear", DynamicQuantizeLinear},
    {"", "MatMulInteger", MatMulInteger},
    {"", "QLinearMatMul", QLinearMatMul},
    {"", "QuantizeLinear", QuantizeLinear},
    {"com.microsoft", "DequantizeLinear", ContribDequantizeLinear},
    {"com.microsoft", "QuantizeLinear", QuantizeLinear},
};

}  // namespace

std::span<const InferenceRule> QuantizationRules() { return kRules; }

}  // namespace onnxd
