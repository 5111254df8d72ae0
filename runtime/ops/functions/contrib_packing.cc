// com.microsoft operators around attention: sequences without their padding, relative positions,
// positions in three dimensions. Source of the semantics: onnxruntime's ContribOperators document.
#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/ops/functions.h"
#include "runtime/ops/functions/dimensions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

constexpr const char* kMicrosoft = "com.microsoft";

Operand Number(FunctionBody& body, int64_t value) {
  return body.Number(static_cast<double>(value), DataType::kInt64);
}

// All elements, in one row.
Operand Flat(FunctionBody& body, Operand x) {
  return body.Call("Reshape", {x, body.Integers({-1})});
}

// Where `flags` [n] is true, as [count].
Operand Places(FunctionBody& body, Operand flags) {
  return Flat(body, body.Call("NonZero", {flags}));
}

// input [batch, sequence, hidden] and how many tokens of each sequence count; gives the tokens
// that count, where those and then the others stood, the sums of the counts, and the largest.
Status RemovePadding(FunctionBody& body) {
  const Operand x = body.Input(0), counts = body.Input(1);
  const Operand batch = DimensionOf(body, x, 0), sequence = DimensionOf(body, x, 1);
  const Operand step = Unsqueeze(body, body.Cast(Range(body, sequence), DataType::kInt32), 0);
  const Operand real = Flat(body, body.Call("Less", {step, Unsqueeze(body, counts, 1)}));
  const Operand kept = Places(body, real);
  const Operand order =
      body.Call("Concat", {kept, Places(body, body.Call("Not", {real}))}, AxisOf(0));
  const Operand rows = body.Call(
      "Reshape",
      {x, body.Call("Concat", {body.Integers({-1}), DimensionOf(body, x, 2)}, AxisOf(0))});
  body.Return(0, body.Call("Gather", {rows, kept}));
  const Operand grid = body.Call("Concat", {batch, sequence}, AxisOf(0));
  body.Return(1, body.Cast(body.Call("Reshape", {order, grid}), DataType::kInt32));
  const Operand sums = body.Call("CumSum", {counts, Number(body, 0)});
  const Operand zero = body.Cast(body.Integers({0}), DataType::kInt32);
  body.Return(2, body.Call("Concat", {zero, sums}, AxisOf(0)));
  body.Return(3, body.Call("ReduceMax", {counts, body.Integers({0})}));
  return Status::Ok();
}

// The first offsets, as many as there are tokens, as int64 [tokens].
Operand TokenPlaces(FunctionBody& body, Operand tokens, Operand offsets) {
  const Operand all = body.Cast(Flat(body, offsets), DataType::kInt64);
  return Slice(body, all, body.Integers({0}), DimensionOf(body, tokens, 0), 0);
}

// tokens [count, hidden] to [batch, sequence, hidden], zeros elsewhere.
Operand WithPadding(FunctionBody& body, Operand tokens, Operand offsets, DataType type) {
  const Operand hidden = DimensionOf(body, tokens, 1);
  const Operand grid = body.Call("Shape", {offsets});
  const Operand size = body.Call("ReduceProd", {grid, body.Integers({0})});
  const Operand zero =
      body.Call("Expand", {body.Number(0, type), body.Call("Concat", {size, hidden}, AxisOf(0))});
  const Operand places = Unsqueeze(body, TokenPlaces(body, tokens, offsets), 1);
  const Operand rows = body.Call("ScatterND", {zero, places, tokens});
  return body.Call("Reshape", {rows, body.Call("Concat", {grid, hidden}, AxisOf(0))});
}

// x [batch, sequence, hidden] to the tokens that count, in the order of `tokens`.
Operand WithoutPadding(FunctionBody& body, Operand x, Operand tokens, Operand offsets) {
  const Operand shape =
      body.Call("Concat", {body.Integers({-1}), DimensionOf(body, x, 2)}, AxisOf(0));
  const Operand rows = body.Call("Reshape", {x, shape});
  return body.Call("Gather", {rows, TokenPlaces(body, tokens, offsets)});
}

Status RestorePadding(FunctionBody& body) {
  body.Return(0, WithPadding(body, body.Input(0), body.Input(1), body.InputType(0)));
  return Status::Ok();
}

// How long each sequence is, from the sums of the lengths.
Operand Lengths(FunctionBody& body, Operand sums) {
  const Operand end = body.Integers({1 << 30}), one = body.Integers({1});
  return body.Call("Sub", {Slice(body, sums, one, end, 0),
                           Slice(body, sums, body.Integers({0}), body.Integers({-1}), 0)});
}

Attributes AttentionAttributes(const Attributes& from) {
  Attributes attributes;
  for (const char* name : {"num_heads", "scale", "mask_filter_value"}) {
    const auto entry = from.entries().find(name);
    if (entry != from.entries().end()) attributes.Set(name, entry->second);
  }
  return attributes;
}

// input [tokens, hidden], weights, bias, token_offset, cumulative_sequence_length, attention_bias?
Status PackedAttention(FunctionBody& body) {
  const Operand tokens = body.Input(0), offsets = body.Input(3);
  const Operand projected =
      body.Call("Add", {body.Call("MatMul", {tokens, body.Input(1)}), body.Input(2)});
  const Operand x = WithPadding(body, projected, offsets, body.InputType(0));
  const auto sizes = body.attributes().Ints("qkv_hidden_sizes");
  const auto parts =
      sizes.size() == 3
          ? body.CallMany("Split", {x, body.Integers(sizes)}, 3, AxisOf(-1))
          : body.CallMany("Split", {x}, 3,
                          MakeAttributes({{"axis", int64_t{-1}}, {"num_outputs", int64_t{3}}}));
  const Operand y =
      body.Call("MultiHeadAttention",
                {parts[0], parts[1], parts[2], {}, Lengths(body, body.Input(4)), body.Input(5)},
                AttentionAttributes(body.attributes()), kMicrosoft);
  body.Return(0, WithoutPadding(body, y, tokens, offsets));
  return Status::Ok();
}

// query [tokens, hidden], key, value, or all of them in query [tokens, heads, 3, size]; bias?,
// token_offset, cumulative_sequence_length, attention_bias?
Status PackedMultiHeadAttention(FunctionBody& body) {
  const Operand offsets = body.Input(4);
  const DataType type = body.InputType(0);
  const bool packed = !body.HasInput(1);
  Operand parts[3];
  if (packed) {
    const Operand query = body.Input(0);
    const Operand rows = body.Call("Flatten", {query}, AxisOf(1));
    const Operand lane = body.Call("Shape", {query}, MakeAttributes({{"start", int64_t{1}}}));
    const Operand shape = body.Call("Concat", {body.Call("Shape", {offsets}), lane}, AxisOf(0));
    parts[0] = body.Call("Reshape", {WithPadding(body, rows, offsets, type), shape});
  } else {
    for (size_t i = 0; i < 3; ++i) parts[i] = WithPadding(body, body.Input(i), offsets, type);
  }
  const Operand y = body.Call(
      "MultiHeadAttention",
      {parts[0], parts[1], parts[2], body.Input(3), Lengths(body, body.Input(5)), body.Input(6)},
      AttentionAttributes(body.attributes()), kMicrosoft);
  body.Return(0, WithoutPadding(body, y, body.Input(0), offsets));
  return Status::Ok();
}

// T5's buckets: near distances have one each, farther ones share theirs on a logarithmic scale.
// Source: Raffel et al. 2020, arXiv:1910.10683, 2.1. `distance`: key minus query, int64.
Operand Buckets(FunctionBody& body, Operand distance, int64_t buckets, int64_t farthest,
                bool both_ways) {
  Operand first;
  if (both_ways) {
    buckets /= 2;
    const Operand later =
        body.Cast(body.Call("Greater", {distance, Number(body, 0)}), DataType::kInt64);
    first = body.Call("Mul", {later, Number(body, buckets)});
    distance = body.Call("Abs", {distance});
  } else {
    distance = body.Call("Max", {body.Call("Neg", {distance}), Number(body, 0)});
  }
  const int64_t exact = buckets / 2;
  const double per_octave = static_cast<double>(buckets - exact) /
                            std::log(static_cast<double>(farthest) / static_cast<double>(exact));
  const auto real = [&](double value) { return body.Number(value, DataType::kFloat); };
  // At least 1, so that the logarithm of what is not used is defined.
  const Operand far =
      body.Call("Div", {body.Cast(body.Call("Max", {distance, Number(body, 1)}), DataType::kFloat),
                        real(static_cast<double>(exact))});
  const Operand shared =
      body.Cast(body.Call("Mul", {body.Call("Log", {far}), real(per_octave)}), DataType::kInt64);
  const Operand large = body.Call(
      "Min", {body.Call("Add", {shared, Number(body, exact)}), Number(body, buckets - 1)});
  const Operand near = body.Call("Less", {distance, Number(body, exact)});
  const Operand bucket = body.Call("Where", {near, distance, large});
  return first.absent() ? bucket : body.Call("Add", {first, bucket});
}

// bias_table [buckets, heads], whose elements lie head by head; query_length, key_length. Gives
// [1, heads, queries, keys].
Status RelativePositionBias(FunctionBody& body) {
  const Attributes& a = body.attributes();
  const int64_t buckets = body.InputDim(0, 0), farthest = a.Int("max_distance", 0);
  const bool both_ways = a.Int("is_bidirectional", 0) != 0;
  const int64_t exact = buckets / (both_ways ? 4 : 2);
  if (buckets < 0) return Unimplemented("the number of buckets is not known");
  if (exact < 1 || farthest <= exact) {
    return InvalidArgument(StrCat(buckets, " buckets with max_distance ", farthest));
  }
  const Operand heads = DimensionOf(body, body.Input(0), 1);
  const Operand table =
      body.Call("Reshape",
                {body.Input(0), body.Call("Concat", {heads, body.Integers({buckets})}, AxisOf(0))});
  const Operand queries = Unsqueeze(body, Range(body, Flat(body, body.Input(1))), 1);
  const Operand keys = Unsqueeze(body, Range(body, Flat(body, body.Input(2))), 0);
  const Operand bucket =
      Buckets(body, body.Call("Sub", {keys, queries}), buckets, farthest, both_ways);
  body.Return(0, Unsqueeze(body, body.Call("Gather", {table, bucket}, AxisOf(1)), 0));
  return Status::Ok();
}

// query_layer [batch, sequence, hidden] or, with token_offset, [tokens, hidden]; query_bias,
// rel_pos [1, heads, sequence, sequence], weight [size, d], bias [d], eco_a [1, heads, 1, 1].
Status GatedRelativePositionBias(FunctionBody& body) {
  const int64_t heads = body.attributes().Int("num_heads", 0);
  if (heads < 1) return InvalidArgument("num_heads must be positive");
  Operand query = body.Call("Add", {body.Input(0), body.Input(1)});
  if (body.HasInput(6)) query = WithPadding(body, query, body.Input(6), body.InputType(0));
  query = body.Call("Reshape", {query, body.Integers({0, 0, heads, -1})});
  query =
      body.Call("Transpose", {query}, MakeAttributes({{"perm", std::vector<int64_t>{0, 2, 1, 3}}}));
  const Operand gates =
      body.Call("Add", {body.Call("MatMul", {query, body.Input(3)}), body.Input(4)});
  const Operand halves = body.Call("Reshape", {gates, body.Integers({0, 0, 0, 2, -1})});
  const Operand sums = body.Call("ReduceSum", {halves, body.Integers({-1})},
                                 MakeAttributes({{"keepdims", int64_t{0}}}));
  const auto gate =
      body.CallMany("Split", {body.Call("Sigmoid", {sums})}, 2,
                    MakeAttributes({{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}}));
  const DataType type = body.InputType(0);
  const Operand inner =
      body.Call("Sub", {body.Call("Mul", {gate[1], body.Input(5)}), body.Number(1, type)});
  const Operand outer =
      body.Call("Add", {body.Call("Mul", {gate[0], inner}), body.Number(2, type)});
  body.Return(0, body.Call("Mul", {outer, body.Input(2)}));
  return Status::Ok();
}

// Which of the three positions each column of the caches follows.
Result<std::vector<int64_t>> SectionOfColumn(const std::vector<int64_t>& sections, int64_t layout) {
  constexpr int64_t kMostColumns = 1 << 20;
  int64_t columns = 0;
  for (const int64_t section : sections) {
    if (section < 0 || section > kMostColumns) return InvalidArgument("mrope_section");
    columns += section;
  }
  if (sections.size() != 3 || layout < 0 || layout > 1) {
    return InvalidArgument("mrope_section needs 3 numbers, mrope_layout is 0 or 1");
  }
  std::vector<int64_t> owners;
  for (int64_t column = 0; column < columns; ++column) {
    if (layout == 0) {
      owners.push_back(column < sections[0] ? 0 : column < sections[0] + sections[1] ? 1 : 2);
    } else {
      const int64_t owner = column % 3;
      owners.push_back(column < 3 * sections[static_cast<size_t>(owner)] ? owner : 0);
    }
  }
  return owners;
}

// RotaryEmbedding whose angles follow three positions: position_ids [3, batch, sequence].
Status MRotaryEmbedding(FunctionBody& body) {
  const Attributes& a = body.attributes();
  if (a.Int("is_packed_batching", 0) != 0) return Unimplemented("is_packed_batching");
  ONNXD_ASSIGN_OR_RETURN(const std::vector<int64_t> owners,
                         SectionOfColumn(a.Ints("mrope_section"), a.Int("mrope_layout", 0)));
  const auto columns = static_cast<int64_t>(owners.size());
  // [3, columns]: 1 where a position decides the column.
  std::vector<float> flags(3 * owners.size(), 0.0f);
  for (size_t c = 0; c < owners.size(); ++c) {
    flags[static_cast<size_t>(owners[c]) * owners.size() + c] = 1.0f;
  }
  const Operand shares = body.Cast(body.Constant(Tensor::Of<float>(Shape{3, 1, 1, columns}, flags)),
                                   body.InputType(0));
  const auto angles = [&](size_t cache) {
    const Operand used =
        Slice(body, body.Input(cache), body.Integers({0}), body.Integers({columns}), 1);
    const Operand rows = body.Call("Gather", {used, body.Input(1)});
    return body.Call("ReduceSum", {body.Call("Mul", {rows, shares}), body.Integers({0})},
                     MakeAttributes({{"keepdims", int64_t{0}}}));
  };
  Attributes rotary;
  rotary.Set("interleaved", a.Int("interleaved", 0));
  rotary.Set("rotary_embedding_dim", 2 * columns);
  if (a.Has("num_heads")) rotary.Set("num_heads", a.Int("num_heads", 0));
  body.Return(0, body.Call("RotaryEmbedding", {body.Input(0), angles(2), angles(3)}, rotary));
  return Status::Ok();
}

constexpr FunctionEntry kFunctions[] = {
    {kMicrosoft, "GatedRelativePositionBias", 1, 1, GatedRelativePositionBias},
    {kMicrosoft, "MRotaryEmbedding", 1, 1, MRotaryEmbedding},
    {kMicrosoft, "PackedAttention", 1, 1, PackedAttention},
    {kMicrosoft, "PackedMultiHeadAttention", 1, 1, PackedMultiHeadAttention},
    {kMicrosoft, "RelativePositionBias", 1, 1, RelativePositionBias},
    {kMicrosoft, "RemovePadding", 1, 1, RemovePadding},
    {kMicrosoft, "RestorePadding", 1, 1, RestorePadding},
};

}  // namespace

std::span<const FunctionEntry> ContribPackingFunctions() { return kFunctions; }

}  // namespace onnxd
