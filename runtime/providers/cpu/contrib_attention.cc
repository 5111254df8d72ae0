// com.microsoft MultiHeadAttention.
// Source of the semantics: onnxruntime's ContribOperators document.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "runtime/providers/cpu/attention_heads.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

struct Projection {
  HeadRows rows;
  int64_t length = 0, size = 0;
  Tensor made;  // whose elements they are; undefined: those of an input
};

// Of x, [batch, length, heads * size] or [batch, heads, length, size].
Projection RowsOf(const Tensor& x, int64_t heads) {
  const Shape& s = x.shape();
  if (s.rank() == 4) return {CacheRows(x.data<float>(), heads, s[2], s[3]), s[2], s[3], {}};
  const int64_t size = s[2] / heads;
  return {{x.data<float>(), s[1] * s[2], size, s[2]}, s[1], size, {}};
}

struct ProjectionSource {
  const Tensor& x;
  const float* bias;             // [heads * size]; null: none
  const Tensor* past;            // whose rows come first; null: none
  std::optional<size_t> output;  // that the rows become
};

// Where nothing is done to the rows they stay where they are.
Result<Projection> Project(const EagerCall& call, int64_t heads, const ProjectionSource& source) {
  Projection fresh = RowsOf(source.x, heads);
  // Those that come as rows of heads have theirs already.
  const float* const bias = source.x.shape().rank() == 4 ? nullptr : source.bias;
  if (bias == nullptr && source.past == nullptr && !source.output) return fresh;
  const int64_t batch = source.x.shape()[0], size = fresh.size;
  const int64_t held = source.past != nullptr ? source.past->shape()[2] : 0;
  Projection all;
  all.length = held + fresh.length;
  all.size = size;
  const Shape shape{batch, heads, all.length, size};
  ONNXD_ASSIGN_OR_RETURN(all.made, source.output
                                       ? call.MakeOutput(*source.output, DataType::kFloat, shape)
                                       : Tensor::Create(DataType::kFloat, shape));
  float* const made = all.made.mutable_data<float>();
  all.rows = CacheRows(made, heads, all.length, size);
  const auto fill = [&](int64_t first, int64_t last) {
    for (int64_t lane = first; lane < last; ++lane) {
      const int64_t b = lane / heads, h = lane % heads;
      float* to = made + lane * all.length * size;
      if (held > 0) {
        std::copy_n(source.past->data<float>() + lane * held * size, held * size, to);
        to += held * size;
      }
      const float* from = fresh.rows.At(b, h);
      for (int64_t i = 0; i < fresh.length; ++i, from += fresh.rows.row, to += size) {
        if (bias == nullptr) {
          std::copy_n(from, size, to);
        } else {
          math::CurrentSimd().binary(math::Binary::kAdd, from, bias + h * size, to, size, 1, 1);
        }
      }
    }
  };
  const int64_t lanes = batch * heads;
  call.pool.ParallelFor(lanes, std::max<int64_t>(1, kLeastCopied / (all.length * size + 1)), fill);
  return all;
}

// Which keys a padding mask hides: [batch] lengths, [batch, keys] or [batch, queries, keys] flags.
class PaddingMask {
 public:
  static Result<PaddingMask> Make(const Node& node, const Tensor* tensor, int64_t batch,
                                  int64_t queries, int64_t keys) {
    PaddingMask mask;
    if (tensor == nullptr) return mask;
    const Shape& s = tensor->shape();
    mask.values_ = ElementsAs<int32_t>(*tensor);
    mask.rank_ = s.rank();
    mask.queries_ = queries;
    mask.keys_ = keys;
    const bool fits =
        s == Shape{batch} || s == Shape{batch, keys} || s == Shape{batch, queries, keys};
    if (!fits) {
      return Unimplemented(StrCat(Describe(node), ": key_padding_mask of shape ", s.ToString()));
    }
    return mask;
  }

  bool given() const { return rank_ > 0; }

  // Requires given().
  bool Hides(int64_t b, int64_t query, int64_t key) const {
    if (rank_ == 1) return key >= values_[static_cast<size_t>(b)];
    const int64_t row = rank_ == 2 ? b : b * queries_ + query;
    return values_[static_cast<size_t>(row * keys_ + key)] == 0;
  }

 private:
  std::vector<int32_t> values_;
  int rank_ = 0;
  int64_t queries_ = 0, keys_ = 0;
};

// Query, key and value behind each other: [batch, sequence, heads, 3, size].
Status Unpack(const Node& node, const Tensor& packed, int64_t heads, Tensor (&parts)[3]) {
  const Shape& s = packed.shape();
  if (s.rank() != 5 || s[2] != heads || s[3] != 3)
    return FailAttention(node, "packed query of a bad shape");
  for (int64_t part = 0; part < 3; ++part) {
    auto& out = parts[static_cast<size_t>(part)];
    ONNXD_ASSIGN_OR_RETURN(out, Tensor::Create(DataType::kFloat, Shape{s[0], s[1], heads * s[4]}));
    for (int64_t row = 0; row < s[0] * s[1] * heads; ++row) {
      std::copy_n(packed.data<float>() + (row * 3 + part) * s[4], s[4],
                  out.mutable_data<float>() + row * s[4]);
    }
  }
  return Status::Ok();
}

// What becomes an output, if it is one.
Value ValueOf(const Projection& projection) {
  return projection.made.defined() ? Value(projection.made) : Value();
}

Result<Values> MultiHeadAttention(const EagerCall& call) {
  const Node& node = call.node;
  const std::span<const Value> inputs = call.inputs;
  const int64_t heads = node.attributes.Int("num_heads", 0);
  Tensor parts[3];
  if (TensorAt(inputs, 1) == nullptr) {
    ONNXD_RETURN_IF_ERROR(Unpack(node, inputs[0].tensor(), heads, parts));
  } else {
    if (TensorAt(inputs, 2) == nullptr) {
      return Unimplemented(StrCat(Describe(node), ": packed keys and values are not supported"));
    }
    for (size_t i = 0; i < 3; ++i) parts[i] = inputs[i].tensor();
  }
  const Shape& qs = parts[0].shape();
  const int64_t batch = qs[0];
  for (size_t i = 0; i < 3; ++i) {
    const Shape& s = parts[i].shape();
    const bool rank3 = s.rank() == 3 && s[0] == batch && s[2] % heads == 0;
    const bool rank4 = i > 0 && s.rank() == 4 && s[0] == batch && s[1] == heads;
    if (!rank3 && !rank4)
      return FailAttention(node, StrCat("operand ", i, " of shape ", s.ToString()));
  }
  const Tensor* bias = TensorAt(inputs, 3);
  const float* biases[3] = {nullptr, nullptr, nullptr};
  if (bias != nullptr) {
    int64_t at = 0;
    for (size_t i = 0; i < 3; ++i) {
      biases[i] = bias->data<float>() + at;
      const Shape& s = parts[i].shape();
      at += s.rank() == 3 ? s[2] : s[1] * s[3];
    }
    if (bias->ElementCount() != at) return FailAttention(node, "bias has the wrong length");
  }
  const Tensor *past_key = TensorAt(inputs, 6), *past_value = TensorAt(inputs, 7);
  for (const auto& [given, part] : {std::pair(past_key, 1), {past_value, 2}}) {
    const Projection rows = RowsOf(parts[part], heads);
    ONNXD_RETURN_IF_ERROR(CheckPast(node, given, batch, heads, rows.size));
  }
  const auto output = [&](size_t i) {
    return node.output(i) != kNoValue ? std::optional(i) : std::nullopt;
  };
  ONNXD_ASSIGN_OR_RETURN(const Projection q,
                         Project(call, heads, {parts[0], biases[0], nullptr, std::nullopt}));
  ONNXD_ASSIGN_OR_RETURN(Projection k,
                         Project(call, heads, {parts[1], biases[1], past_key, output(1)}));
  ONNXD_ASSIGN_OR_RETURN(Projection v,
                         Project(call, heads, {parts[2], biases[2], past_value, output(2)}));
  if (q.size != k.size || k.length != v.length)
    return FailAttention(node, "query, key and value differ");
  const int64_t past = past_key != nullptr ? past_key->shape()[2] : 0;
  ONNXD_ASSIGN_OR_RETURN(const PaddingMask mask,
                         PaddingMask::Make(node, TensorAt(inputs, 4), batch, q.length, k.length));
  ONNXD_ASSIGN_OR_RETURN(
      const ScoreBias score_bias,
      ScoreBias::Make(node, TensorAt(inputs, 5), batch, heads, q.length, k.length));
  float scale = node.attributes.Float("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<float>(q.size));
  const float hidden = node.attributes.Float("mask_filter_value", -10000.0f);
  const bool causal = node.attributes.Int("unidirectional", 0) != 0;
  const int64_t width = heads * v.size;
  ONNXD_ASSIGN_OR_RETURN(Tensor out,
                         call.MakeOutput(0, DataType::kFloat, Shape{batch, q.length, width}));
  float* const to = out.mutable_data<float>();
  const auto run_head = [&](HeadRunner& runner, int64_t lane) {
    const int64_t b = lane / heads, h = lane % heads;
    const auto change = [&](int64_t i, float* scores, int64_t keys) {
      score_bias.Add(b, h, i, scores, keys);
      for (int64_t j = 0; mask.given() && j < keys; ++j) {
        if (mask.Hides(b, i, j)) scores[j] += hidden;
      }
    };
    runner.Run({q.length, k.length, q.size, v.size, q.rows.At(b, h), k.rows.At(b, h),
                v.rows.At(b, h), q.rows.row, k.rows.row, v.rows.row,
                to + b * q.length * width + h * v.size, width, scale, causal ? past + 1 : k.length},
               kMinusInfinity, change);
  };
  ForLanes(call.pool, batch * heads, q.length * k.length * q.size, run_head);
  return Values{std::move(out), ValueOf(k), ValueOf(v)};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeMultiHeadAttention(const KernelInfo& info) {
  return FloatOnly(info, MakeEagerCallKernel(MultiHeadAttention));
}
}  // namespace onnxd
