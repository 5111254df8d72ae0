// com.microsoft operators of language models and quantized files.
#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

Dimension Product(const Dimension& a, const Dimension& b) {
  int64_t product = 0;
  const bool known = a.known() && b.known() && !__builtin_mul_overflow(a.value, b.value, &product);
  return known ? Dimension(product) : Dimension();
}

Dimension Quotient(const Dimension& a, int64_t by) {
  return a.known() && by > 0 ? Dimension(a.value / by) : Dimension();
}

// [batch, sequence, heads * head size]; the present tensors are [batch, heads, total, head size].
// Output 1 or 2 of MultiHeadAttention, keys or values behind the past ones (input 6 or 7): of
// [batch, length, heads * size], [batch, heads, length, size], or packed with the query,
// [batch, length, heads, 3, size].
void SetPresent(InferenceContext& context, int64_t heads, size_t index) {
  const SymbolicShape* x = context.shape(context.HasInput(1) ? index : 0);
  const bool has_past = context.HasInput(5 + index);
  const SymbolicShape* past = context.shape(5 + index);
  if (x == nullptr || (has_past && (past == nullptr || past->size() != 4))) return;
  Dimension length, size;
  if (x->size() == 3) {
    length = (*x)[1];
    size = Quotient((*x)[2], heads);
  } else if (x->size() == 4) {
    length = (*x)[2];
    size = (*x)[3];
  } else if (x->size() == 5) {
    length = (*x)[1];
    size = (*x)[4];
  } else {
    return;
  }
  if (has_past) {
    const bool known = length.known() && (*past)[2].known();
    length = known ? Dimension((*past)[2].value + length.value) : Dimension();
  }
  context.SetShape(index, {(*x)[0], heads, length, size});
}

Status MultiHeadAttention(InferenceContext& context) {
  const SymbolicShape* q = context.shape(0);
  const SymbolicShape* v = context.shape(2);
  const int64_t heads = context.attributes().Int("num_heads", 0);
  if (heads < 1) return context.Fail("num_heads must be positive");
  if (q == nullptr) return Status::Ok();
  SymbolicShape out = {(*q)[0], (*q)[1], Dimension()};
  Dimension value_head;
  if (q->size() == 5) {
    value_head = (*q)[4];
  } else if (q->size() == 3 && v != nullptr && v->size() == 3) {
    value_head = Quotient((*v)[2], heads);
  } else if (v != nullptr && v->size() == 4) {
    value_head = (*v)[3];
  }
  if (q->size() != 3 && q->size() != 5) return context.Fail("query must have rank 3 or 5");
  out[2] = Product(value_head, heads);
  context.SetShape(0, std::move(out));
  SetPresent(context, heads, 1);
  SetPresent(context, heads, 2);
  return Status::Ok();
}

Status GroupQueryAttention(InferenceContext& context) {
  const SymbolicShape* q = context.shape(0);
  const int64_t heads = context.attributes().Int("num_heads", 0);
  const int64_t key_heads = context.attributes().Int("kv_num_heads", 0);
  if (heads < 1 || key_heads < 1 || heads % key_heads != 0) {
    return context.Fail("num_heads must be a multiple of kv_num_heads");
  }
  if (q == nullptr) return Status::Ok();
  if (q->size() != 3) return context.Fail("query must have rank 3");
  const bool packed = !context.HasInput(1);
  const Dimension head = Quotient((*q)[2], packed ? heads + 2 * key_heads : heads);
  context.SetShape(0, {(*q)[0], (*q)[1], Product(head, heads)});
  const SymbolicShape* past = context.shape(3);
  const auto total = context.known_ints(6);
  if (past != nullptr && past->size() != 4) return context.Fail("past_key must have rank 4");
  Dimension length;
  if (total && total->size() == 1 && (past == nullptr || (*past)[2].known())) {
    length = std::max((*total)[0], past == nullptr ? 0 : (*past)[2].value);
  }
  context.SetShape(1, {(*q)[0], key_heads, length, head});
  context.SetShape(2, {(*q)[0], key_heads, length, head});
  return Status::Ok();
}

Status SparseAttention(InferenceContext& context) {
  const SymbolicShape* q = context.shape(0);
  const int64_t heads = context.attributes().Int("num_heads", 0);
  const int64_t key_heads = context.attributes().Int("kv_num_heads", 0);
  if (heads < 1 || key_heads < 1 || heads % key_heads != 0) {
    return context.Fail("num_heads must be a multiple of kv_num_heads");
  }
  // The caches are as long as the past ones.
  for (const size_t i : {3, 4}) {
    if (const SymbolicShape* past = context.shape(i)) context.SetShape(i - 2, *past);
  }
  if (q == nullptr) return Status::Ok();
  if (q->size() != 3) return context.Fail("query must have rank 3");
  const Dimension head = Quotient((*q)[2], context.HasInput(1) ? heads : heads + 2 * key_heads);
  context.SetShape(0, {(*q)[0], (*q)[1], Product(head, heads)});
  return Status::Ok();
}

Status SkipRmsNormalization(InferenceContext& context) {
  ONNXD_RETURN_IF_ERROR(SameShapeAsInput(context));
  if (const SymbolicShape* shape = context.shape(0)) context.SetShape(3, *shape);
  return Status::Ok();
}

// A and B of quantized elementwise operators are operands 0 and 3.
Status QuantizedPair(InferenceContext& context) {
  if (context.shape(0) == nullptr || context.shape(3) == nullptr) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(SymbolicShape out, Broadcast(*context.shape(0), *context.shape(3)));
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status SameShapeAsScores(InferenceContext& context) {
  if (const SymbolicShape* scores = context.shape(1)) context.SetShape(0, *scores);
  return Status::Ok();
}

Status MatMulNBits(InferenceContext& context) {
  const SymbolicShape* a = context.shape(0);
  const int64_t n = context.attributes().Int("N", 0), k = context.attributes().Int("K", 0);
  if (n < 1 || k < 1) return context.Fail("N and K must be positive");
  if (a == nullptr) return Status::Ok();
  if (a->empty() || (a->back().known() && a->back().value != k)) {
    return context.Fail(StrCat("A of shape ", ToString(*a), " does not end in K = ", k));
  }
  SymbolicShape out = *a;
  out.back() = n;
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status FloatProduct(InferenceContext& context) {
  const SymbolicShape* a = context.shape(0);
  const SymbolicShape* b = context.shape(1);
  if (a == nullptr || b == nullptr) return Status::Ok();
  if (a->empty() || b->size() != 2) return context.Fail("B must be a matrix");
  SymbolicShape out = *a;
  out.back() = (*b)[1];
  if (context.node().op_type == "MatMulIntegerToFloat") {
    context.SetElement(0,
                       context.input(2).is_tensor() ? context.input(2).element : DataType::kFloat);
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status QuantizedGlobalAveragePool(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  if (shape->size() < 3) return context.Fail("the input has no spatial axes");
  const bool last = context.attributes().Int("channels_last", 0) != 0;
  SymbolicShape out = *shape;
  std::fill(out.begin() + (last ? 1 : 2), out.end() - (last ? 1 : 0), Dimension(1));
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status QuantizedConcat(InferenceContext& context) {
  const SymbolicShape* first = context.shape(2);
  if (first == nullptr) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(context.attributes().Int("axis", 0),
                                                       static_cast<int>(first->size())));
  SymbolicShape out = *first;
  Dimension extent = 0;
  for (size_t i = 2; i < context.input_count(); i += 3) {
    const SymbolicShape* shape = context.shape(i);
    const bool known = shape != nullptr && shape->size() == out.size() &&
                       (*shape)[static_cast<size_t>(axis)].known() && extent.known();
    extent =
        known ? Dimension(extent.value + (*shape)[static_cast<size_t>(axis)].value) : Dimension();
  }
  out[static_cast<size_t>(axis)] = extent;
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status QGemm(InferenceContext& context) {
  const bool quantized = context.HasInput(7);
  if (!quantized) context.SetElement(0, DataType::kFloat);
  if (quantized && context.input(0).is_tensor()) context.SetElement(0, context.input(0).element);
  const SymbolicShape* a = context.shape(0);
  const SymbolicShape* b = context.shape(3);
  if (a == nullptr || b == nullptr) return Status::Ok();
  if (a->size() != 2 || b->size() != 2) return context.Fail("A and B must be matrices");
  const bool across_a = context.attributes().Int("transA", 0) != 0;
  const bool across_b = context.attributes().Int("transB", 0) != 0;
  context.SetShape(0, {(*a)[across_a ? 1 : 0], (*b)[across_b ? 0 : 1]});
  return Status::Ok();
}

// The rows that indices pick, as Gather; data in bytes holds several elements a byte.
Status GatherBlockQuantized(InferenceContext& context) {
  const SymbolicShape* data = context.shape(0);
  const SymbolicShape* indices = context.shape(1);
  if (data == nullptr || indices == nullptr) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(context.attributes().Int("gather_axis", 0),
                                                       static_cast<int>(data->size())));
  SymbolicShape table = *data;
  const int64_t bits = context.attributes().Int("bits", 4);
  if (context.input(0).element == DataType::kUint8 && bits > 0 && bits <= 8) {
    table.back() = Product(table.back(), 8 / bits);
  }
  SymbolicShape out(table.begin(), table.begin() + axis);
  out.insert(out.end(), indices->begin(), indices->end());
  out.insert(out.end(), table.begin() + axis + 1, table.end());
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status MurmurHash3(InferenceContext& context) {
  const bool positive = context.attributes().Int("positive", 1) != 0;
  context.SetElement(0, positive ? DataType::kUint32 : DataType::kInt32);
  return SameShapeAsInput(context);
}

constexpr InferenceRule kRules[] = {
    {"com.microsoft", "DynamicQuantizeMatMul", FloatProduct},
    {"com.microsoft", "GatherBlockQuantized", GatherBlockQuantized},
    {"com.microsoft", "GroupQueryAttention", GroupQueryAttention},
    {"com.microsoft", "MatMulIntegerToFloat", FloatProduct},
    {"com.microsoft", "Inverse", SameShapeAsInput},
    {"com.microsoft", "MatMulNBits", MatMulNBits},
    {"com.microsoft", "MoE", SameShapeAsInput},
    {"com.microsoft", "MultiHeadAttention", MultiHeadAttention},
    {"com.microsoft", "MurmurHash3", MurmurHash3},
    {"com.microsoft", "NGramRepeatBlock", SameShapeAsScores},
    {"com.microsoft", "QGemm", QGemm},
    {"com.microsoft", "QLinearAdd", QuantizedPair},
    {"com.microsoft", "QLinearConcat", QuantizedConcat},
    {"com.microsoft", "QLinearGlobalAveragePool", QuantizedGlobalAveragePool},
    {"com.microsoft", "QLinearLeakyRelu", SameShapeAsInput},
    {"com.microsoft", "QLinearMul", QuantizedPair},
    {"com.microsoft", "QLinearSigmoid", SameShapeAsInput},
    {"com.microsoft", "QLinearSoftmax", SameShapeAsInput},
    {"com.microsoft", "QMoE", SameShapeAsInput},
    {"com.microsoft", "RotaryEmbedding", SameShapeAsInput},
    {"com.microsoft", "SparseAttention", SparseAttention},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", SkipRmsNormalization},
};

}  // namespace

std::span<const InferenceRule> ContribTransformerRules() { return kRules; }

}  // namespace onnxd
