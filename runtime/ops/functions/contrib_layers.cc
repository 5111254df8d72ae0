// com.microsoft operators of transformers and of older converters, said in operators that have
// kernels. Source of the semantics: onnxruntime's ContribOperators document.
#include "runtime/base/str_cat.h"
#include "runtime/ops/functions.h"
#include "runtime/ops/functions/dimensions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

constexpr const char* kMicrosoft = "com.microsoft";

// Which keys a mask of Attention lets through: int32 [batch, keys] or [batch, queries, keys].
//   [batch]: how many keys count; [2 * batch]: also from which on
//   [batch, keys], [batch, queries, keys]: as they are
//   [batch, 1, positions, positions]: the rows and columns of this call
struct MaskSizes {
  Operand batch, queries, past, total;  // each of rank 1
};

Status AttentionMask(FunctionBody& body, size_t input, const MaskSizes& sizes, Operand& mask) {
  mask = body.Input(input);
  if (mask.absent()) return Status::Ok();
  const int rank = body.InputRank(input);
  const Operand zero = body.Integers({0});
  if (rank == 2 || rank == 3) return Status::Ok();
  if (rank == 4) {
    mask = Slice(body, mask, sizes.past, sizes.total, 2);
    mask = Squeeze(body, Slice(body, mask, zero, sizes.total, 3), 1);
    return Status::Ok();
  }
  const int64_t length = body.InputDim(input, 0), batch = body.InputDim(0, 0);
  if (rank != 1 || (length > 0 && batch > 0 && length != batch && length != 2 * batch)) {
    return Unimplemented(StrCat("a mask of rank ", rank, " and length ", length));
  }
  const Operand twice = body.Call("Add", {sizes.batch, sizes.batch});
  const Operand no_begin =
      body.Call("ConstantOfShape", {sizes.batch},
                MakeAttributes({{"value", Initializer(Tensor::Of<int32_t>(Shape{1}, {0}))}}));
  const Operand both =
      body.Call("Concat", {mask, no_begin}, MakeAttributes({{"axis", int64_t{0}}}));
  const Operand ends = Unsqueeze(body, Slice(body, both, zero, sizes.batch, 0), 1);
  const Operand begins = Unsqueeze(body, Slice(body, both, sizes.batch, twice, 0), 1);
  const Operand keys = Unsqueeze(body, body.Cast(Range(body, sizes.total), DataType::kInt32), 0);
  const Operand inside = body.Call(
      "And", {body.Call("Less", {keys, ends}), body.Call("GreaterOrEqual", {keys, begins})});
  mask = body.Cast(inside, DataType::kInt32);
  return Status::Ok();
}

// The rest of Attention and QAttention: `x` [batch, queries, hidden] and `weights`
// [hidden, all of q, k and v] are float. The inputs stand at the given positions.
struct AttentionInputs {
  size_t mask, past, bias;  // bias: what is added to the scores
};

Status AttentionOf(FunctionBody& body, Operand x, Operand weights, Operand projection_bias,
                   const AttentionInputs& at) {
  const Attributes& a = body.attributes();
  const int64_t heads = a.Int("num_heads", 0);
  if (heads < 1) return InvalidArgument("num_heads must be positive");
  if (a.Int("do_rotary", 0) != 0 || a.Int("past_present_share_buffer", 0) != 0) {
    return Unimplemented("do_rotary and past_present_share_buffer");
  }
  Operand projected = body.Call("MatMul", {x, weights});
  if (!projection_bias.absent()) projected = body.Call("Add", {projected, projection_bias});
  const auto hidden = a.Ints("qkv_hidden_sizes");
  const auto parts =
      hidden.size() == 3
          ? body.CallMany("Split", {projected, body.Integers(hidden)}, 3,
                          MakeAttributes({{"axis", int64_t{-1}}}))
          : body.CallMany("Split", {projected}, 3,
                          MakeAttributes({{"axis", int64_t{-1}}, {"num_outputs", int64_t{3}}}));
  Operand past_key, past_value;
  MaskSizes sizes;
  sizes.batch = DimensionOf(body, x, 0);
  sizes.queries = DimensionOf(body, x, 1);
  sizes.past = body.Integers({0});
  if (body.HasInput(at.past)) {
    const auto past =
        body.CallMany("Split", {body.Input(at.past)}, 2,
                      MakeAttributes({{"axis", int64_t{0}}, {"num_outputs", int64_t{2}}}));
    past_key = Squeeze(body, past[0], 0);
    past_value = Squeeze(body, past[1], 0);
    sizes.past = DimensionOf(body, past_key, 2);
  }
  sizes.total = body.Call("Add", {sizes.past, sizes.queries});
  Operand mask;
  ONNXD_RETURN_IF_ERROR(AttentionMask(body, at.mask, sizes, mask));
  Attributes attention;
  for (const char* name : {"num_heads", "scale", "mask_filter_value", "unidirectional"}) {
    const auto entry = a.entries().find(name);
    if (entry != a.entries().end()) attention.Set(name, entry->second);
  }
  const auto results = body.CallMany(
      "MultiHeadAttention",
      {parts[0], parts[1], parts[2], {}, mask, body.Input(at.bias), past_key, past_value}, 3,
      attention, kMicrosoft);
  body.Return(0, results[0]);
  if (!body.HasOutput(1)) return Status::Ok();
  body.Return(1,
              body.Call("Concat", {Unsqueeze(body, results[1], 0), Unsqueeze(body, results[2], 0)},
                        MakeAttributes({{"axis", int64_t{0}}})));
  return Status::Ok();
}

// input, weights, bias?, mask_index?, past?, attention_bias?, past_sequence_length?
Status Attention(FunctionBody& body) {
  if (body.HasInput(6)) return Unimplemented("past_sequence_length");
  return AttentionOf(body, body.Input(0), body.Input(1), body.Input(2), {3, 4, 5});
}

// input, weight, bias, input_scale, weight_scale, mask_index?, input_zero_point?,
// weight_zero_point?, past?
Status QAttention(FunctionBody& body) {
  const Operand x = body.Call("DequantizeLinear", {body.Input(0), body.Input(3), body.Input(6)});
  const Operand weights =
      body.Call("DequantizeLinear", {body.Input(1), body.Input(4), body.Input(7)},
                MakeAttributes({{"axis", int64_t{1}}}));
  return AttentionOf(body, x, weights, body.Input(2), {5, 8, 99});
}

// Sum of the rows that the ids pick, normalized. `tables` are float.
struct Embedding {
  Operand ids, segments, positions;              // positions absent: 0, 1, ...
  Operand words, position_table, segment_table;  // [entries, hidden]
  Operand gamma, beta, mask;
};

void EmbedLayerNormalizationOf(FunctionBody& body, const Embedding& e) {
  const Operand words = body.Call("Gather", {e.words, e.ids});
  const Operand positions =
      e.positions.absent()
          ? Slice(body, e.position_table, body.Integers({0}), DimensionOf(body, e.ids, 1), 0)
          : body.Call("Gather", {e.position_table, e.positions});
  Operand sum = body.Call("Add", {words, positions});
  if (!e.segment_table.absent() && !e.segments.absent()) {
    sum = body.Call("Add", {sum, body.Call("Gather", {e.segment_table, e.segments})});
  }
  body.Return(0,
              body.Call("LayerNormalization", {sum, e.gamma, e.beta},
                        MakeAttributes({{"axis", int64_t{-1}},
                                        {"epsilon", body.attributes().Float("epsilon", 1e-12f)}})));
  if (body.HasOutput(1)) {
    const Operand batch = DimensionOf(body, e.ids, 0);
    const Attribute none = Initializer(Tensor::Of<int32_t>(Shape{1}, {0}));
    body.Return(1, e.mask.absent()
                       ? body.Call("ConstantOfShape", {batch}, MakeAttributes({{"value", none}}))
                       : body.Call("ReduceSum", {e.mask, body.Integers({1})},
                                   MakeAttributes({{"keepdims", int64_t{0}}})));
  }
  body.Return(2, sum);
}

Status EmbedLayerNormalization(FunctionBody& body) {
  Embedding e;
  e.ids = body.Input(0);
  e.segments = body.Input(1);
  e.words = body.Input(2);
  e.position_table = body.Input(3);
  e.segment_table = body.Input(4);
  e.gamma = body.Input(5);
  e.beta = body.Input(6);
  e.mask = body.Input(7);
  e.positions = body.Input(8);
  EmbedLayerNormalizationOf(body, e);
  return Status::Ok();
}

// As above, with 8-bit tables whose scales and zero points follow the mask.
Status QEmbedLayerNormalization(FunctionBody& body) {
  const auto table = [&](size_t i, size_t scale, size_t zero) {
    if (!body.HasInput(i)) return Operand{};
    return body.Call("DequantizeLinear", {body.Input(i), body.Input(scale), body.Input(zero)});
  };
  Embedding e;
  e.ids = body.Input(0);
  e.segments = body.Input(1);
  e.words = table(2, 8, 13);
  e.position_table = table(3, 9, 14);
  e.segment_table = table(4, 10, 15);
  e.gamma = table(5, 11, 16);
  e.beta = table(6, 12, 17);
  e.mask = body.Input(7);
  EmbedLayerNormalizationOf(body, e);
  return Status::Ok();
}

Status FusedGemm(FunctionBody& body) {
  const Attributes& a = body.attributes();
  Attributes gemm, activation;
  for (const char* name : {"alpha", "beta", "transA", "transB"}) {
    const auto entry = a.entries().find(name);
    if (entry != a.entries().end()) gemm.Set(name, entry->second);
  }
  for (const char* name : {"alpha", "beta", "gamma"}) {
    const auto entry = a.entries().find(StrCat("activation_", name));
    if (entry != a.entries().end()) activation.Set(name, entry->second);
  }
  const Operand y = body.Call("Gemm", {body.Input(0), body.Input(1), body.Input(2)}, gemm);
  body.Return(0, body.Call(a.String("activation", "Relu"), {y}, activation));
  return Status::Ok();
}

// Operators that the standard has had since, under another name or in another form.
Status TransposeMatMul(FunctionBody& body) {
  body.Return(
      0, body.Call("FusedMatMul", {body.Input(0), body.Input(1)}, body.attributes(), kMicrosoft));
  return Status::Ok();
}

Status ExpandDims(FunctionBody& body) {
  const Operand axis = body.Cast(body.Input(1), DataType::kInt64);
  body.Return(
      0, body.Call("Unsqueeze", {body.Input(0), body.Call("Reshape", {axis, body.Integers({1})})}));
  return Status::Ok();
}

// The standard's operator of the same name.
Status SameName(FunctionBody& body) {
  std::vector<Operand> inputs;
  for (size_t i = 0; i < body.node().inputs.size(); ++i) inputs.push_back(body.Input(i));
  const auto results =
      body.CallMany(body.node().op_type, inputs, body.node().outputs.size(), body.attributes());
  for (size_t i = 0; i < results.size(); ++i) body.Return(i, results[i]);
  return Status::Ok();
}

// pads may be [1, 2 * rank].
Status Pad(FunctionBody& body) {
  const Operand pads = body.Call("Reshape", {body.Input(1), body.Integers({-1})});
  Operand value = body.Input(2);
  if (!value.absent()) value = body.Call("Reshape", {value, body.Integers({})});
  body.Return(0, body.Call("Pad", {body.Input(0), pads, value}, body.attributes()));
  return Status::Ok();
}

// Distances between the rows of A [m, k] and B [n, k].
Status CDist(FunctionBody& body) {
  const Operand difference =
      body.Call("Sub", {Unsqueeze(body, body.Input(0), 1), Unsqueeze(body, body.Input(1), 0)});
  const Operand squares =
      body.Call("ReduceSum", {body.Call("Mul", {difference, difference}), body.Integers({-1})},
                MakeAttributes({{"keepdims", int64_t{0}}}));
  const bool root = body.attributes().String("metric", "sqeuclidean") == "euclidean";
  body.Return(0, root ? body.Call("Sqrt", {squares}) : squares);
  return Status::Ok();
}

// The operator of the standard on [batch, spatial..., channels]; only the first input is turned.
Status OnChannelsLast(FunctionBody& body, const std::string& op) {
  const int rank = body.InputRank(0);
  if (rank < 3) return Unimplemented("the input's rank is not known");
  std::vector<Operand> inputs;
  for (size_t i = 0; i < body.node().inputs.size(); ++i) inputs.push_back(body.Input(i));
  inputs[0] = ChannelsFirst(body, inputs[0], rank);
  const Operand y = body.CallMany(op, inputs, 1, body.attributes())[0];
  body.Return(0, ChannelsLast(body, y, rank));
  return Status::Ok();
}

Status NhwcMaxPool(FunctionBody& body) { return OnChannelsLast(body, "MaxPool"); }

// Domain com.ms.internal.nhwc: what onnxruntime's layout transformation leaves in saved models.
Status InternalNhwc(FunctionBody& body) {
  if (body.HasOutput(1)) return Unimplemented("a second output");
  return OnChannelsLast(body, body.node().op_type);
}

Status BiasSoftmax(FunctionBody& body) {
  const Attributes& a = body.attributes();
  const int rank = body.InputRank(0), bias_rank = body.InputRank(1);
  const int64_t given = a.Int("axis", 1);
  if (rank < 1 || bias_rank < 0) return Unimplemented("the ranks of the inputs are not known");
  const int64_t axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis >= rank) return InvalidArgument(StrCat("axis is ", given));
  // Dimensions from axis on are one row of the softmax.
  const Operand sum = body.Call("Add", {body.Input(0), body.Input(1)});
  const Operand rows = body.Call("Flatten", {sum}, MakeAttributes({{"axis", axis}}));
  const Operand y = body.Call("Softmax", {rows}, MakeAttributes({{"axis", int64_t{1}}}));
  body.Return(0, body.Call("Reshape", {y, body.Call("Shape", {sum})}));
  return Status::Ok();
}

// X + bias + skip
Status BiasAdd(FunctionBody& body) {
  const Operand sum = body.Call("Add", {body.Input(0), body.Input(1)});
  body.Return(0, body.Call("Add", {sum, body.Input(2)}));
  return Status::Ok();
}

// left * gelu(right) of the halves of X + bias.
Status BiasSplitGelu(FunctionBody& body) {
  const Operand sum = body.Call("Add", {body.Input(0), body.Input(1)});
  const auto halves = body.CallMany(
      "Split", {sum}, 2, MakeAttributes({{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}}));
  body.Return(0, body.Call("Mul", {halves[0], body.Call("Gelu", {halves[1]})}));
  return Status::Ok();
}

// GroupNormalization, then x * sigmoid(x) when the attribute activation is 1.
Operand NormalizeGroups(FunctionBody& body, Operand x, int rank, size_t gamma, size_t beta) {
  const Attributes& a = body.attributes();
  const bool last = a.Int("channels_last", 1) != 0;
  if (last) x = ChannelsFirst(body, x, rank);
  Operand y = body.Call(
      "GroupNormalization",
      {x, body.Cast(body.Input(gamma), body.InputType(0)),
       body.Cast(body.Input(beta), body.InputType(0))},
      MakeAttributes({{"num_groups", a.Int("groups", 1)}, {"epsilon", a.Float("epsilon", 1e-5f)}}));
  if (a.Int("activation", 0) == 1) y = body.Call("Mul", {y, body.Call("Sigmoid", {y})});
  return last ? ChannelsLast(body, y, rank) : y;
}

Status GroupNorm(FunctionBody& body) {
  const int rank = body.InputRank(0);
  if (rank < 3) return Unimplemented("the input's rank is not known");
  body.Return(0, NormalizeGroups(body, body.Input(0), rank, 1, 2));
  return Status::Ok();
}

// X, gamma, beta, skip, bias?; the second output is what was normalized.
Status SkipGroupNorm(FunctionBody& body) {
  const int rank = body.InputRank(0), skip_rank = body.InputRank(3);
  if (rank < 3 || (skip_rank != rank && skip_rank != 2)) {
    return Unimplemented("the rank of X or of skip");
  }
  const bool last = body.attributes().Int("channels_last", 1) != 0;
  Operand skip = body.Input(3);
  // [batch, channels] stands for every position.
  for (int axis = 2; skip_rank == 2 && axis < rank; ++axis) {
    skip = Unsqueeze(body, skip, last ? 1 : 2);
  }
  Operand sum = body.Call("Add", {body.Input(0), skip});
  if (body.HasInput(4)) {
    Operand bias = body.Input(4);
    for (int axis = 2; !last && axis < rank; ++axis) bias = Unsqueeze(body, bias, -1);
    sum = body.Call("Add", {sum, bias});
  }
  body.Return(0, NormalizeGroups(body, sum, rank, 1, 2));
  if (body.HasOutput(1)) body.Return(1, sum);
  return Status::Ok();
}

// The modes have other names than in GridSample-20.
Status GridSample(FunctionBody& body) {
  Attributes attributes = body.attributes();
  const std::string mode = attributes.String("mode", "bilinear");
  if (mode == "bilinear") attributes.Set("mode", std::string("linear"));
  if (mode == "bicubic") attributes.Set("mode", std::string("cubic"));
  body.Return(0, body.Call("GridSample", {body.Input(0), body.Input(1)}, attributes));
  return Status::Ok();
}

// uniques, idx, counts: elements in the order of their first appearance.
Status Unique(FunctionBody& body) {
  const auto all =
      body.CallMany("Unique", {body.Input(0)}, 4, MakeAttributes({{"sorted", int64_t{0}}}));
  body.Return(0, all[0]);
  if (body.HasOutput(1)) body.Return(1, all[2]);
  if (body.HasOutput(2)) body.Return(2, all[3]);
  return Status::Ok();
}

constexpr const char* kInternalNhwc = "com.ms.internal.nhwc";
constexpr FunctionEntry kFunctions[] = {
    {kMicrosoft, "Attention", 1, 1, Attention},
    {kMicrosoft, "BiasAdd", 1, 1, BiasAdd},
    {kMicrosoft, "BiasSoftmax", 1, 1, BiasSoftmax},
    {kMicrosoft, "BiasSplitGelu", 1, 1, BiasSplitGelu},
    {kMicrosoft, "CDist", 1, 1, CDist},
    {kMicrosoft, "EmbedLayerNormalization", 1, 1, EmbedLayerNormalization},
    {kMicrosoft, "ExpandDims", 1, 1, ExpandDims},
    {kMicrosoft, "FusedGemm", 1, 1, FusedGemm},
    {kMicrosoft, "GatherND", 1, 1, SameName},
    {kMicrosoft, "GridSample", 1, 1, GridSample},
    {kMicrosoft, "GroupNorm", 1, 1, GroupNorm},
    {kMicrosoft, "NhwcMaxPool", 1, 1, NhwcMaxPool},
    {kMicrosoft, "Pad", 1, 1, Pad},
    {kMicrosoft, "QAttention", 1, 1, QAttention},
    {kMicrosoft, "QEmbedLayerNormalization", 1, 1, QEmbedLayerNormalization},
    {kMicrosoft, "Range", 1, 1, SameName},
    {kMicrosoft, "SkipGroupNorm", 1, 1, SkipGroupNorm},
    {kMicrosoft, "TransposeMatMul", 1, 1, TransposeMatMul},
    {kMicrosoft, "Trilu", 1, 1, SameName},
    {kMicrosoft, "Unique", 1, 1, Unique},
    {kInternalNhwc, "AveragePool", 1, 1 << 30, InternalNhwc},
    {kInternalNhwc, "Conv", 1, 1 << 30, InternalNhwc},
    {kInternalNhwc, "GlobalAveragePool", 1, 1 << 30, InternalNhwc},
    {kInternalNhwc, "GlobalMaxPool", 1, 1 << 30, InternalNhwc},
    {kInternalNhwc, "MaxPool", 1, 1 << 30, InternalNhwc},
    {kInternalNhwc, "QLinearConv", 1, 1 << 30, InternalNhwc},
};

}  // namespace

std::span<const FunctionEntry> ContribLayerFunctions() { return kFunctions; }

}  // namespace onnxd
