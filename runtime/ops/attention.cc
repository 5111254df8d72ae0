// Attention and what transformers put around it.
#include "runtime/ops/attention.h"

#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"
#include "runtime/tensor/strides.h"

namespace onnxd {
namespace {

std::optional<Shape> ConcreteShape(const InferenceContext& context, size_t i) {
  const SymbolicShape* shape = context.shape(i);
  return shape == nullptr ? std::nullopt : ToConcrete(*shape);
}

// With symbols in a shape only what a copy of a dimension gives is known.
void SymbolicAttention(InferenceContext& context) {
  const SymbolicShape* q = context.shape(0);
  const SymbolicShape* v = context.shape(2);
  if (q == nullptr || v == nullptr || q->size() != v->size()) return;
  SymbolicShape y = *q;
  if (q->size() == 4) {
    y[3] = (*v)[3];
  } else if (q->size() == 3) {
    const int64_t heads = context.attributes().Int("q_num_heads", 0);
    const int64_t key_heads = context.attributes().Int("kv_num_heads", 0);
    y[2] = (*v)[2].known() && key_heads > 0 ? Dimension((*v)[2].value / key_heads * heads)
                                            : Dimension();
  }
  context.SetShape(0, std::move(y));
}

Status Attention(InferenceContext& context) {
  for (size_t i = 0; i < 3; ++i) {
    if (context.shape(i) == nullptr) return Status::Ok();
  }
  const bool has_past = context.HasInput(4);
  const auto q = ConcreteShape(context, 0), k = ConcreteShape(context, 1),
             v = ConcreteShape(context, 2), past_key = ConcreteShape(context, 4),
             past_value = ConcreteShape(context, 5);
  if (!q || !k || !v || (has_past && (!past_key || !past_value))) {
    SymbolicAttention(context);
    return Status::Ok();
  }
  ONNXD_ASSIGN_OR_RETURN(
      const AttentionSizes s,
      AttentionSizesOf(context.node(), *q, *k, *v, past_key ? &*past_key : nullptr,
                       past_value ? &*past_value : nullptr));
  if (s.split_heads) {
    context.SetShape(0, {s.batch, s.query_heads, s.queries, s.value_head});
  } else {
    context.SetShape(0, {s.batch, s.queries, s.query_heads * s.value_head});
  }
  context.SetShape(1, {s.batch, s.key_heads, s.total(), s.head});
  context.SetShape(2, {s.batch, s.key_heads, s.total(), s.value_head});
  context.SetShape(3, {s.batch, s.query_heads, s.queries, s.total()});
  return Status::Ok();
}

// com.microsoft: a positive state_window returns that many states, on an axis in front.
SymbolicShape WithStateWindow(const InferenceContext& context, SymbolicShape state) {
  const int64_t window = context.attributes().Int("state_window", 0);
  if (window > 0) state.insert(state.begin(), Dimension(window));
  return state;
}

Status LinearAttention(InferenceContext& context) {
  const SymbolicShape* q = context.shape(0);
  const SymbolicShape* v = context.shape(2);
  const int64_t heads = context.attributes().Int("q_num_heads", 0);
  const int64_t key_heads = context.attributes().Int("kv_num_heads", 0);
  if (heads < 1 || key_heads < 1) return context.Fail("q_num_heads and kv_num_heads are needed");
  // The state has the past state's type, else the query's.
  const ValueType& state = context.HasInput(3) ? context.input(3) : context.input(0);
  if (state.is_tensor()) context.SetElement(1, state.element);
  if (q == nullptr || v == nullptr) return Status::Ok();
  if (q->size() != 3 || v->size() != 3) return context.Fail("query and value must have rank 3");
  const auto divided = [](const Dimension& dimension, int64_t by) {
    return dimension.known() ? Dimension(dimension.value / by) : Dimension();
  };
  const auto whole = [](const Dimension& dimension, int64_t by) {
    return !dimension.known() || dimension.value % by == 0;
  };
  // com.microsoft has the case of fewer query heads too.
  const bool contrib = context.node().domain == "com.microsoft";
  const bool fits = heads % key_heads == 0 || (contrib && key_heads % heads == 0);
  if (!fits || !whole((*q)[2], heads) || !whole((*v)[2], key_heads)) {
    return context.Fail("the heads do not divide query and value");
  }
  const Dimension value = divided((*v)[2], key_heads);
  int64_t width = 0;
  if (value.known() && __builtin_mul_overflow(value.value, std::max(heads, key_heads), &width)) {
    return context.Fail("q_num_heads is too large");
  }
  context.SetShape(0, {(*q)[0], (*q)[1], value.known() ? Dimension(width) : Dimension()});
  context.SetShape(1,
                   WithStateWindow(context, {(*q)[0], key_heads, divided((*q)[2], heads), value}));
  return Status::Ok();
}

Status CausalConvWithState(InferenceContext& context) {
  ONNXD_RETURN_IF_ERROR(SameShapeAsInput(context));
  const SymbolicShape* x = context.shape(0);
  const SymbolicShape* w = context.shape(1);
  if (x == nullptr || w == nullptr) return Status::Ok();
  const bool channels_last = context.attributes().Int("channels_last", 0) != 0;
  if ((channels_last ? x->size() < 3 : x->size() != 3) || w->size() != 3) {
    return context.Fail("input and weight must have rank 3");
  }
  const Dimension& taps = (*w)[2];
  if (taps.known() && taps.value < 1) return context.Fail("the weight is empty");
  int64_t held = 0;
  const int64_t dilation = context.attributes().Int("dilation", 1);
  if (dilation < 1 || (taps.known() && __builtin_mul_overflow(taps.value - 1, dilation, &held))) {
    return context.Fail("dilation is out of range");
  }
  SymbolicShape state = *x;
  state[channels_last ? 1 : 2] = taps.known() ? Dimension(held) : Dimension();
  context.SetShape(1, WithStateWindow(context, std::move(state)));
  return Status::Ok();
}

Status FlexAttention(InferenceContext& context) {
  const SymbolicShape* q = context.shape(0);
  const SymbolicShape* v = context.shape(2);
  if (q == nullptr || v == nullptr) return Status::Ok();
  if (q->size() != 4 || v->size() != 4) return context.Fail("Q and V must have rank 4");
  context.SetShape(0, {(*q)[0], (*q)[1], (*q)[2], (*v)[3]});
  return Status::Ok();
}

// A shape through an attribute like Transpose's perm, absent: as it is. Nothing when that cannot
// be.
std::optional<SymbolicShape> Permuted(const InferenceContext& context, const SymbolicShape& shape,
                                      std::string_view attribute) {
  const std::vector<int64_t> order = context.attributes().Ints(attribute);
  if (order.empty()) return shape;
  std::vector<bool> seen(shape.size(), false);
  if (order.size() != shape.size()) return std::nullopt;
  SymbolicShape out;
  for (const int64_t axis : order) {
    if (axis < 0 || axis >= static_cast<int64_t>(shape.size()) || seen[static_cast<size_t>(axis)]) {
      return std::nullopt;
    }
    seen[static_cast<size_t>(axis)] = true;
    out.push_back(shape[static_cast<size_t>(axis)]);
  }
  return order.back() == static_cast<int64_t>(order.size()) - 1 ? std::optional(out) : std::nullopt;
}

// onnxd::FusedAttention(query, key, value, mask?, window_mask?): [batch..., rows, width] after the
// orders of axes; batches broadcast, the mask's too, which may also stretch a lone query. The
// window mask changes no shape.
Status FusedAttention(InferenceContext& context) {
  constexpr std::string_view kOrders[] = {"query_perm", "key_perm", "value_perm"};
  std::vector<SymbolicShape> operands;
  for (size_t i = 0; i < 3; ++i) {
    if (context.shape(i) == nullptr) return Status::Ok();
    const auto shape = Permuted(context, *context.shape(i), kOrders[i]);
    if (!shape || shape->size() < 2 || (i > 0 && shape->size() != operands[0].size())) {
      return context.Fail("operands and orders of axes do not fit; orders must keep the last axis");
    }
    operands.push_back(*shape);
  }
  const size_t leading = operands[0].size() - 2;
  SymbolicShape batch;
  for (const SymbolicShape& operand : operands) {
    const SymbolicShape own(operand.begin(), operand.end() - 2);
    ONNXD_ASSIGN_OR_RETURN(batch, Broadcast(batch, own));
  }
  SymbolicShape rows = {operands[0][leading]};
  if (const SymbolicShape* mask = context.shape(3); mask != nullptr && mask->size() > 1) {
    if (mask->size() > leading + 2) return context.Fail("the mask has too many axes");
    const SymbolicShape own(mask->begin(), mask->end() - 2);
    ONNXD_ASSIGN_OR_RETURN(batch, Broadcast(batch, own));
    ONNXD_ASSIGN_OR_RETURN(rows, Broadcast(rows, {(*mask)[mask->size() - 2]}));
  }
  batch.push_back(rows[0]);
  batch.push_back(operands[2].back());
  auto out = Permuted(context, batch, "output_perm");
  if (!out) return context.Fail("output_perm does not fit");
  context.SetShape(0, std::move(*out));
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "Attention", Attention},
    {"", "CausalConvWithState", CausalConvWithState},
    {"", "LinearAttention", LinearAttention},
    {"", "RotaryEmbedding", SameShapeAsInput},
    {"", "SwiGLU", SameShapeAsInput},
    {"ai.onnx.preview", "FlexAttention", FlexAttention},
    {"com.microsoft", "CausalConvWithState", CausalConvWithState},
    {"com.microsoft", "LinearAttention", LinearAttention},
    {"onnxd", "FusedAttention", FusedAttention},
};

}  // namespace

Result<AttentionMask> AttentionMaskOf(const Node& node, const Shape& mask,
                                      const AttentionSizes& sizes) {
  const std::vector<int64_t> wanted = {sizes.batch, sizes.query_heads, sizes.queries,
                                       sizes.total()};
  const auto fail = [&] {
    return InvalidArgument(StrCat(Describe(node), ": attn_mask of shape ", mask.ToString(),
                                  " does not broadcast to ", Shape(wanted).ToString()));
  };
  if (mask.rank() < 1 || mask.rank() > 4) return fail();
  AttentionMask result;
  const std::vector<int64_t> dense = DenseStrides(mask);
  for (int i = 0; i < mask.rank(); ++i) {
    const int axis = 4 - mask.rank() + i;
    const bool last = axis == 3;
    const bool fits = mask[i] == wanted[static_cast<size_t>(axis)] || mask[i] == 1 ||
                      (last && mask[i] < wanted[3]);
    if (!fits) return fail();
    const bool stretched = mask[i] == 1 && wanted[static_cast<size_t>(axis)] != 1;
    result.strides[static_cast<size_t>(axis)] = stretched ? 0 : dense[static_cast<size_t>(i)];
  }
  result.keys = mask[mask.rank() - 1];
  if (result.keys == 1 && sizes.total() > 1) result.keys = sizes.total();
  return result;
}

Result<AttentionSizes> AttentionSizesOf(const Node& node, const Shape& q, const Shape& k,
                                        const Shape& v, const Shape* past_key,
                                        const Shape* past_value) {
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat(Describe(node), ": ", why, " (Q ", q.ToString(), ", K ",
                                  k.ToString(), ", V ", v.ToString(), ")"));
  };
  AttentionSizes s;
  if (q.rank() != k.rank() || q.rank() != v.rank() || (q.rank() != 3 && q.rank() != 4)) {
    return fail("Q, K and V must all have rank 3 or all rank 4");
  }
  s.split_heads = q.rank() == 4;
  s.batch = q[0];
  if (s.split_heads) {
    s.query_heads = q[1];
    s.key_heads = k[1];
    s.queries = q[2];
    s.keys = k[2];
    s.head = q[3];
    s.value_head = v[3];
    if (k[3] != s.head || v[1] != s.key_heads || v[2] != s.keys) return fail("shapes do not match");
  } else {
    s.query_heads = node.attributes.Int("q_num_heads", 0);
    s.key_heads = node.attributes.Int("kv_num_heads", 0);
    if (s.query_heads <= 0 || s.key_heads <= 0) {
      return fail("rank 3 needs q_num_heads and kv_num_heads");
    }
    s.queries = q[1];
    s.keys = k[1];
    if (q[2] % s.query_heads != 0 || k[2] % s.key_heads != 0 || v[2] % s.key_heads != 0) {
      return fail("the last dimension is no multiple of the number of heads");
    }
    s.head = q[2] / s.query_heads;
    s.value_head = v[2] / s.key_heads;
    if (k[2] / s.key_heads != s.head || v[1] != s.keys) return fail("shapes do not match");
  }
  if (k[0] != s.batch || v[0] != s.batch) return fail("batch sizes differ");
  if (s.key_heads == 0 || s.query_heads % s.key_heads != 0) {
    return fail("the number of query heads is no multiple of that of key heads");
  }
  if ((past_key == nullptr) != (past_value == nullptr)) {
    return fail("past_key and past_value go together");
  }
  if (past_key != nullptr) {
    if (past_key->rank() != 4) return fail("past_key must have rank 4");
    s.past = (*past_key)[2];
    if (!(*past_key == Shape{s.batch, s.key_heads, s.past, s.head}) ||
        !(*past_value == Shape{s.batch, s.key_heads, s.past, s.value_head})) {
      return fail("past_key or past_value do not match");
    }
  }
  return s;
}

std::span<const InferenceRule> AttentionRules() { return kRules; }

}  // namespace onnxd
