// Matrix products, and distances, which are shaped alike.
#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

Status MatMulShape(InferenceContext& context, bool transpose_a, bool transpose_b) {
  if (context.shape(0) == nullptr || context.shape(1) == nullptr) return Status::Ok();
  SymbolicShape a = *context.shape(0), b = *context.shape(1);
  if (a.empty() || b.empty()) return context.Fail("a scalar cannot be multiplied");
  const bool vector_a = a.size() == 1, vector_b = b.size() == 1;
  if (vector_a) a.insert(a.begin(), 1);
  if (vector_b) b.push_back(1);
  if (transpose_a && !vector_a) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (transpose_b && !vector_b) std::swap(b[b.size() - 1], b[b.size() - 2]);
  const Dimension& depth_a = a.back();
  const Dimension& depth_b = b[b.size() - 2];
  if (depth_a.known() && depth_b.known() && depth_a.value != depth_b.value) {
    return context.Fail(StrCat("shapes ", ToString(*context.shape(0)), " and ",
                               ToString(*context.shape(1)), " cannot be multiplied"));
  }
  ONNXD_ASSIGN_OR_RETURN(SymbolicShape out, Broadcast(SymbolicShape(a.begin(), a.end() - 2),
                                                      SymbolicShape(b.begin(), b.end() - 2)));
  if (!vector_a) out.push_back(a[a.size() - 2]);
  if (!vector_b) out.push_back(b.back());
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status MatMul(InferenceContext& context) { return MatMulShape(context, false, false); }

Status FusedMatMul(InferenceContext& context) {
  const Attributes& attributes = context.attributes();
  if (attributes.Int("transBatchA", 0) != 0 || attributes.Int("transBatchB", 0) != 0) {
    return Unimplemented("transBatchA and transBatchB are not supported");
  }
  return MatMulShape(context, attributes.Int("transA", 0) != 0, attributes.Int("transB", 0) != 0);
}

Status Gemm(InferenceContext& context) {
  if (context.shape(0) == nullptr || context.shape(1) == nullptr) return Status::Ok();
  SymbolicShape a = *context.shape(0), b = *context.shape(1);
  if (a.size() != 2 || b.size() != 2) return context.Fail("A and B must be matrices");
  if (context.attributes().Int("transA", 0) != 0) std::swap(a[0], a[1]);
  if (context.attributes().Int("transB", 0) != 0) std::swap(b[0], b[1]);
  if (a[1].known() && b[0].known() && a[1].value != b[0].value) {
    return context.Fail(StrCat("A has ", a[1].value, " columns, B has ", b[0].value, " rows"));
  }
  SymbolicShape out = {a[0], b[1]};
  if (const SymbolicShape* c = context.shape(2)) {
    ONNXD_ASSIGN_OR_RETURN(const SymbolicShape broadcast, Broadcast(out, *c));
    if (broadcast.size() != 2 ||
        (out[0].known() && broadcast[0].known() && broadcast[0] != out[0]) ||
        (out[1].known() && broadcast[1].known() && broadcast[1] != out[1])) {
      return context.Fail(
          StrCat("C of shape ", ToString(*c), " does not broadcast to ", ToString(out)));
    }
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

// A row for each of A's, a column for each of B's.
Status CDist(InferenceContext& context) {
  if (context.input(0).is_tensor()) context.SetElement(0, context.input(0).element);
  if (context.shape(0) == nullptr || context.shape(1) == nullptr) return Status::Ok();
  const SymbolicShape &a = *context.shape(0), &b = *context.shape(1);
  if (a.size() != 2 || b.size() != 2 ||
      (a[1].known() && b[1].known() && a[1].value != b[1].value)) {
    return context.Fail(StrCat("A of shape ", ToString(a), " and B of shape ", ToString(b),
                               " are not two matrices of as many columns"));
  }
  context.SetShape(0, {a[0], b[0]});
  return Status::Ok();
}

// The result has A's type but where output_dtype says otherwise.
Status MatMulBiasActivation(InferenceContext& context) {
  const int64_t stated = context.attributes().Int("output_dtype", 0);
  if (IsDataType(stated)) {
    context.SetElement(0, static_cast<DataType>(stated));
  } else if (context.input(0).is_tensor()) {
    context.SetElement(0, context.input(0).element);
  }
  return MatMulShape(context, false, context.attributes().Int("transB", 0) != 0);
}

constexpr InferenceRule kRules[] = {
    {"", "Gemm", Gemm},
    {"", "MatMul", MatMul},
    {"com.microsoft", "CDist", CDist},
    {"com.microsoft", "FusedMatMul", FusedMatMul},
    {"onnxd", "MatMulAdd", MatMul},
    {"onnxd", "MatMulBfloat16x3", MatMulBiasActivation},
    {"onnxd", "MatMulBiasActivation", MatMulBiasActivation},
    {"onnxd", "MatMulNarrowWeights", MatMulBiasActivation},
};

}  // namespace

std::span<const InferenceRule> MatMulRules() { return kRules; }

}  // namespace onnxd
