// Attention, RotaryEmbedding and CausalConvWithState as their parts, for element types without a
// kernel. Source: the texts and function bodies of ONNX Attention-25, RotaryEmbedding-23 and
// CausalConvWithState-27.
#include <limits>
#include <optional>
#include <string>

#include "runtime/base/str_cat.h"
#include "runtime/ops/functions.h"
#include "runtime/ops/functions/dimensions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

Attributes Permutation(std::vector<int64_t> perm) {
  return MakeAttributes({{"perm", std::move(perm)}});
}

// Input i as [batch, heads, sequence, size]: of rank 3 the heads stand in the last axis.
Result<Operand> HeadsFirst(FunctionBody& body, size_t i, const char* heads_attribute) {
  const int rank = body.InputRank(i);
  if (rank == 4) return body.Input(i);
  const int64_t heads = body.attributes().Int(heads_attribute, 0);
  if (rank != 3 || heads < 1) {
    return Unimplemented(StrCat("input ", i, " of rank ", rank, " with ", heads, " heads"));
  }
  const Operand split = body.Call("Reshape", {body.Input(i), body.Integers({0, 0, heads, -1})});
  return body.Call("Transpose", {split}, Permutation({0, 2, 1, 3}));
}

// All of rank 1.
struct Sizes {
  Operand batch, query_heads, key_heads, queries, past, total;
};

// x [batch, query heads, rows, columns] with the heads that share a key head on an axis of their
// own.
Operand Grouped(FunctionBody& body, const Sizes& z, Operand x) {
  const Operand share = body.Call("Div", {z.query_heads, z.key_heads});
  const Operand shape = body.Call(
      "Concat", {z.batch, z.key_heads, share, DimensionOf(body, x, 2), DimensionOf(body, x, 3)},
      AxisOf(0));
  return body.Call("Reshape", {x, shape});
}

// x [batch, query heads, rows, depth] by y [batch, key heads, depth, columns].
Operand Multiply(FunctionBody& body, const Sizes& z, Operand x, Operand y) {
  const Operand product = body.Call("MatMul", {Grouped(body, z, x), Unsqueeze(body, y, 2)});
  const Operand shape = body.Call(
      "Concat", {z.batch, z.query_heads, DimensionOf(body, x, 2), DimensionOf(body, y, 3)},
      AxisOf(0));
  return body.Call("Reshape", {product, shape});
}

// Which keys a query may not see, by position alone; absent when it may see all.
Operand Hidden(FunctionBody& body, const Sizes& z) {
  const bool causal = body.attributes().Int("is_causal", 0) != 0;
  const int64_t left = body.attributes().Int("left_window_size", -1);
  const int64_t right = body.attributes().Int("right_window_size", -1);
  const Operand key = Range(body, z.total);
  Operand valid, offset = z.past;
  if (body.HasInput(6)) {
    valid = body.Call("Reshape", {body.Input(6), body.Integers({-1, 1, 1, 1})});
    offset = body.Call("Sub", {valid, z.queries});
  }
  const Operand query = body.Call("Add", {Unsqueeze(body, Range(body, z.queries), 1), offset});
  Operand hidden;
  const auto hide = [&](Operand more) {
    hidden = hidden.absent() ? more : body.Call("Or", {hidden, more});
  };
  const auto number = [&](int64_t value) {
    return body.Number(static_cast<double>(value), DataType::kInt64);
  };
  if (causal) hide(body.Call("Greater", {key, query}));
  if (!valid.absent()) hide(body.Call("GreaterOrEqual", {key, valid}));
  if (left >= 0) hide(body.Call("Greater", {body.Call("Sub", {query, key}), number(left)}));
  if (right >= 0) hide(body.Call("Greater", {body.Call("Sub", {key, query}), number(right)}));
  return hidden;
}

// The mask as what is added to the scores; keys beyond its own are masked.
Operand MaskBias(FunctionBody& body, const Sizes& z, DataType type) {
  const Operand none = body.Number(kMinusInfinity, type);
  const Operand mask = body.Input(3);
  const Operand bias = body.InputType(3) == DataType::kBool
                           ? body.Call("Where", {mask, body.Number(0, type), none})
                           : body.Cast(mask, type);
  const int64_t last = body.InputRank(3) - 1;
  const Operand keys = DimensionOf(body, mask, last);
  const Operand stretched = body.Call("Equal", {keys, body.Integers({1})});
  const Operand missing =
      body.Call("Where", {stretched, body.Integers({0}), body.Call("Sub", {z.total, keys})});
  const Operand pads = body.Call("Concat", {body.Integers({0}), missing}, AxisOf(0));
  return body.Call("Pad", {bias, pads, none, body.Integers({last})});
}

// What masks add to the scores; absent when there are none.
Operand Bias(FunctionBody& body, const Sizes& z, DataType type) {
  Operand bias;
  if (body.HasInput(3)) bias = MaskBias(body, z, type);
  const Operand hidden = Hidden(body, z);
  if (hidden.absent()) return bias;
  const Operand shown = bias.absent() ? body.Number(0, type) : bias;
  return body.Call("Where", {hidden, body.Number(kMinusInfinity, type), shown});
}

// Softmax of the rows; zeros where the bias lets no key through.
Operand Probabilities(FunctionBody& body, Operand scores, Operand bias, DataType type) {
  if (bias.absent()) return body.Call("Softmax", {scores}, AxisOf(-1));
  const Operand best = body.Call("ReduceMax", {bias, body.Integers({-1})});
  const Operand any = body.Call("Greater", {best, body.Number(kMinusInfinity, type)});
  const Operand zero = body.Number(0, type);
  const Operand rows = body.Call("Softmax", {body.Call("Where", {any, scores, zero})}, AxisOf(-1));
  return body.Call("Where", {any, rows, zero});
}

// Past rows, then new ones.
Operand WithPast(FunctionBody& body, size_t past, Operand fresh, DataType type) {
  if (!body.HasInput(past)) return fresh;
  return body.Call("Concat", {body.Cast(body.Input(past), type), fresh}, AxisOf(2));
}

Operand Scale(FunctionBody& body, Operand q, DataType type) {
  if (body.attributes().Has("scale")) {
    return body.Number(static_cast<double>(body.attributes().Float("scale", 0)), type);
  }
  const Operand size = body.Cast(DimensionOf(body, q, 3), type);
  return body.Call("Reciprocal", {body.Call("Sqrt", {size})});
}

Status Attention(FunctionBody& body) {
  const DataType own = body.InputType(0);
  if (own == DataType::kUndefined || (body.HasInput(3) && body.InputRank(3) < 1)) {
    return Unimplemented("the type of Q or the rank of the mask is not known");
  }
  const DataType type = own == DataType::kDouble ? DataType::kDouble : DataType::kFloat;
  ONNXD_ASSIGN_OR_RETURN(Operand q, HeadsFirst(body, 0, "q_num_heads"));
  ONNXD_ASSIGN_OR_RETURN(Operand k, HeadsFirst(body, 1, "kv_num_heads"));
  ONNXD_ASSIGN_OR_RETURN(Operand v, HeadsFirst(body, 2, "kv_num_heads"));
  q = body.Cast(q, type);
  k = WithPast(body, 4, body.Cast(k, type), type);
  v = WithPast(body, 5, body.Cast(v, type), type);
  const Operand past = body.HasInput(4) ? DimensionOf(body, body.Input(4), 2) : body.Integers({0});
  const Sizes z{DimensionOf(body, q, 0),
                DimensionOf(body, q, 1),
                DimensionOf(body, k, 1),
                DimensionOf(body, q, 2),
                past,
                DimensionOf(body, k, 2)};
  const int64_t reported = body.attributes().Int("qk_matmul_output_mode", 0);
  const auto report = [&](int64_t stage, Operand scores) {
    if (body.HasOutput(3) && reported == stage) body.Return(3, body.Cast(scores, own));
  };
  const Operand turned = body.Call("Transpose", {k}, Permutation({0, 1, 3, 2}));
  Operand scores = body.Call("Mul", {Multiply(body, z, q, turned), Scale(body, q, type)});
  report(0, scores);
  if (const float cap = body.attributes().Float("softcap", 0); cap > 0) {
    const Operand limit = body.Number(static_cast<double>(cap), type);
    scores = body.Call("Mul", {body.Call("Tanh", {body.Call("Div", {scores, limit})}), limit});
  }
  report(1, scores);
  const Operand bias = Bias(body, z, type);
  if (!bias.absent()) scores = body.Call("Add", {scores, bias});
  report(2, scores);
  scores = Probabilities(body, scores, bias, type);
  report(3, scores);
  Operand y = Multiply(body, z, scores, v);
  if (body.InputRank(0) == 3) {
    y = body.Call("Reshape", {body.Call("Transpose", {y}, Permutation({0, 2, 1, 3})),
                              body.Integers({0, 0, -1})});
  }
  body.Return(0, body.Cast(y, own));
  if (body.HasOutput(1)) body.Return(1, body.Cast(k, body.InputType(1)));
  if (body.HasOutput(2)) body.Return(2, body.Cast(v, body.InputType(2)));
  return Status::Ok();
}

// RotaryEmbedding-23: pairs of numbers of a head are turned by an angle that grows with the
// position.
Status RotaryEmbedding(FunctionBody& body) {
  const Attributes& a = body.attributes();
  const int rank = body.InputRank(0);
  const int64_t heads = a.Int("num_heads", 0), turned = a.Int("rotary_embedding_dim", 0);
  if (rank != 4 && (rank != 3 || heads < 1)) return Unimplemented("the rank of X or num_heads");
  // [batch, sequence, heads, size]
  Operand x = rank == 4 ? body.Call("Transpose", {body.Input(0)}, Permutation({0, 2, 1, 3}))
                        : body.Call("Reshape", {body.Input(0), body.Integers({0, 0, heads, -1})});
  const auto angles = [&](size_t cache) {
    Operand rows = body.HasInput(3) ? body.Call("Gather", {body.Input(cache), body.Input(3)})
                                    : body.Input(cache);
    // A cache for the whole head serves a part of it too.
    if (turned > 0) {
      rows = Slice(body, rows, body.Integers({0}), body.Integers({turned / 2}), 2);
    }
    return Unsqueeze(body, rows, 2);
  };
  const Operand cosine = angles(1), sine = angles(2);
  Operand rest;
  const Operand none = body.Integers({0}),
                all = body.Integers({std::numeric_limits<int64_t>::max()});
  if (turned > 0) {
    rest = Slice(body, x, body.Integers({turned}), all, 3);
    x = Slice(body, x, none, body.Integers({turned}), 3);
  }
  Operand first, second;
  const bool interleaved = a.Int("interleaved", 0) != 0;
  if (interleaved) {
    const Operand axis = body.Integers({3}), two = body.Integers({2});
    first = body.Call("Slice", {x, none, all, axis, two});
    second = body.Call("Slice", {x, body.Integers({1}), all, axis, two});
  } else {
    const auto halves = body.CallMany(
        "Split", {x}, 2, MakeAttributes({{"axis", int64_t{3}}, {"num_outputs", int64_t{2}}}));
    first = halves[0];
    second = halves[1];
  }
  const auto product = [&](Operand left, Operand right) { return body.Call("Mul", {left, right}); };
  const Operand real = body.Call("Sub", {product(first, cosine), product(second, sine)});
  const Operand imaginary = body.Call("Add", {product(first, sine), product(second, cosine)});
  Operand y;
  if (interleaved) {
    const Operand pairs =
        body.Call("Concat", {Unsqueeze(body, real, 4), Unsqueeze(body, imaginary, 4)}, AxisOf(4));
    y = body.Call("Reshape", {pairs, body.Call("Shape", {x})});
  } else {
    y = body.Call("Concat", {real, imaginary}, AxisOf(3));
  }
  if (!rest.absent()) y = body.Call("Concat", {y, rest}, AxisOf(3));
  body.Return(0, rank == 4 ? body.Call("Transpose", {y}, Permutation({0, 2, 1, 3}))
                           : body.Call("Reshape", {y, body.Integers({0, 0, -1})}));
  return Status::Ok();
}

// CausalConvWithState-27: a convolution per channel that sees what came before.
Status CausalConvWithState(FunctionBody& body) {
  const DataType type = body.InputType(0);
  const int64_t channels = body.InputDim(1, 0), taps = body.InputDim(1, 2);
  const std::string activation = body.attributes().String("activation", "none");
  if (type == DataType::kUndefined || channels < 1 || taps < 1) {
    return Unimplemented("the weights' shape is not known");
  }
  const Operand x = body.Input(0), w = body.Input(1);
  Operand past = body.Input(3);
  if (past.absent()) {
    const Operand shape = body.Call(
        "Concat", {DimensionOf(body, x, 0), body.Integers({channels, taps - 1})}, AxisOf(0));
    past = body.Call("Expand", {body.Number(0, type), shape});
  }
  const Operand whole = body.Call("Concat", {past, x}, AxisOf(2));
  Operand y = body.Call("Conv", {whole, w, body.Input(2)}, MakeAttributes({{"group", channels}}));
  if (activation == "silu" || activation == "swish") {
    y = body.Call("Mul", {y, body.Call("Sigmoid", {y})});
  } else if (activation != "none") {
    return InvalidArgument(StrCat("activation is '", activation, "'"));
  }
  body.Return(0, y);
  if (!body.HasOutput(1)) return Status::Ok();
  const Operand length = DimensionOf(body, whole, 2);
  const Operand begin = body.Call("Sub", {length, body.Integers({taps - 1})});
  body.Return(1, Slice(body, whole, begin, length, 2));
  return Status::Ok();
}

// For devices, which read the state where it lies.
Status Append(FunctionBody& body) {
  const int64_t axis = body.attributes().Int("axis", 0);
  const Operand end = body.Integers({std::numeric_limits<int64_t>::max()});
  const Operand kept = Slice(body, body.Input(0), body.Call("Shape", {body.Input(2)}), end, axis);
  body.Return(0, body.Call("Concat", {kept, body.Input(1)}, AxisOf(axis)));
  return Status::Ok();
}

constexpr FunctionEntry kFunctions[] = {
    {"", "Attention", 23, 1 << 30, Attention},
    {"", "CausalConvWithState", 27, 1 << 30, CausalConvWithState},
    {"", "RotaryEmbedding", 23, 1 << 30, RotaryEmbedding},
    {"onnxd", "Append", 1, 1, Append},
};

}  // namespace

std::span<const FunctionEntry> AttentionFunctions() { return kFunctions; }

}  // namespace onnxd
