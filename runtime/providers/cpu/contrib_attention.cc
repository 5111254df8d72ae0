// com.microsoft MultiHeadAttention, GroupQueryAttention and SparseAttention.
// Source of the semantics: onnxruntime's ContribOperators document.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/base/ceil_divide.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/one_query.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

constexpr int64_t kLeastCopied = 1 << 14;      // floats, for a thread
constexpr int64_t kLeastMultiplied = 1 << 16;  // products, for a thread
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

Status Fail(const Node& node, std::string_view why) {
  return InvalidArgument(StrCat(Describe(node), ": ", why));
}

// Rotates pairs of the first `rotated` elements of one head.
void Rotate(const float* in, float* out, int64_t size, int64_t rotated, bool interleaved,
            const float* cos, const float* sin) {
  const int64_t half = rotated / 2;
  for (int64_t d = 0; d < half; ++d) {
    const int64_t first = interleaved ? 2 * d : d, second = interleaved ? 2 * d + 1 : d + half;
    const float real = in[first], imaginary = in[second];
    out[first] = cos[d] * real - sin[d] * imaginary;
    out[second] = sin[d] * real + cos[d] * imaginary;
  }
  std::copy_n(in + rotated, size - rotated, out + rotated);
}

// Rows of heads, [batch, heads, length, size], wherever they lie.
struct HeadRows {
  const float* first = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // strides

  const float* At(int64_t b, int64_t h) const { return first + b * batch + h * head; }
};

// Rows that lie behind each other, as caches have them.
HeadRows CacheRows(const float* first, int64_t heads, int64_t length, int64_t size) {
  return {first, heads * length * size, length * size, size};
}

// One head: out[queries, value] = softmax(scale * q k^T, changed by `change`) v.
struct Head {
  int64_t queries, keys, size, value;
  const float *q, *k, *v;
  int64_t q_stride, k_stride, v_stride;
  float* out;
  int64_t out_stride;
  float scale;
};

// Changes the scores of one query in place.
using ChangeRow = std::function<void(int64_t query, float* scores)>;

// One thread. A single query, as a text is written, reads keys and values once; more of them are
// worth packing these, and are taken in blocks whose scores stay in the cache.
class HeadRunner {
 public:
  // `extra`: added to the denominator of the softmax, as a logarithm; -infinity: nothing.
  void Run(const Head& h, float extra, const ChangeRow& change) {
    const math::Simd& simd = math::CurrentSimd();
    const int64_t block = std::min(h.queries, kMostQueries);
    Prepare(scores_, block * h.keys);
    float* const scores = scores_.mutable_data<float>();
    if (h.queries == 1) {
      MultiplyQuery(h.q, h.k, h.k_stride, h.keys, h.size, scores);
      Weigh(h, 0, 1, scores, extra, change);
      return simd.weigh_rows(h.v, h.v_stride, h.keys, scores, h.out, h.value);
    }
    Prepare(keys_, math::PackedBSize(simd, h.size, h.keys));
    Prepare(values_, math::PackedBSize(simd, h.keys, h.value));
    float *const keys = keys_.mutable_data<float>(), *const values = values_.mutable_data<float>();
    simd.pack_b(h.k, h.k_stride, true, h.size, h.keys, keys);
    simd.pack_b(h.v, h.v_stride, false, h.keys, h.value, values);
    for (int64_t first = 0; first < h.queries; first += block) {
      const int64_t rows = std::min(block, h.queries - first);
      simd.gemm({rows, h.keys, h.size, h.q + first * h.q_stride, h.q_stride, keys, scores, h.keys});
      Weigh(h, first, rows, scores, extra, change);
      simd.gemm({rows, h.value, h.keys, scores, h.keys, values, h.out + first * h.out_stride,
                 h.out_stride});
    }
  }

 private:
  static constexpr int64_t kMostQueries = 60;

  // What becomes of scores, of queries from `first` on.
  static void Weigh(const Head& h, int64_t first, int64_t rows, float* scores, float extra,
                    const ChangeRow& change) {
    const math::Simd& simd = math::CurrentSimd();
    simd.affine(scores, scores, rows * h.keys, h.scale, 0.0f);
    for (int64_t i = 0; i < rows; ++i) {
      float* row = scores + i * h.keys;
      change(first + i, row);
      const float largest = std::max(simd.max(row, h.keys), extra);
      if (largest == kMinusInfinity) {
        std::fill_n(row, h.keys, 0.0f);
        continue;
      }
      float sum = simd.exp_sum(row, row, h.keys, largest, 1.0f);
      if (extra != kMinusInfinity) sum += std::exp(extra - largest);
      simd.affine(row, row, h.keys, 1.0f / sum, 0.0f);
    }
  }

  static void Prepare(Tensor& tensor, int64_t floats) {
    if (tensor.defined() && tensor.ElementCount() >= floats) return;
    auto created = Tensor::Create(DataType::kFloat, Shape{floats});
    if (!created.ok()) throw std::bad_alloc();
    tensor = std::move(*created);
  }

  Tensor scores_, keys_, values_;
};

// Calls run(runner, lane) for all heads of all batch entries, each of so many products.
template <typename Run>
void ForLanes(ThreadPool& pool, int64_t lanes, int64_t products, const Run& run) {
  const auto run_some = [&](int64_t first, int64_t last) {
    HeadRunner runner;
    for (int64_t lane = first; lane < last; ++lane) run(runner, lane);
  };
  const int64_t fair = CeilDivide(lanes, pool.threads());
  pool.ParallelFor(lanes, std::max({int64_t{1}, kLeastMultiplied / (products + 1), fair}),
                   run_some);
}

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

// A tensor that is added to the scores, broadcast from [batch, heads, queries, keys].
class ScoreBias {
 public:
  static Result<ScoreBias> Make(const Node& node, const Tensor* tensor, int64_t batch,
                                int64_t heads, int64_t queries, int64_t keys) {
    ScoreBias bias;
    if (tensor == nullptr) return bias;
    const Shape& s = tensor->shape();
    const bool fits = s.rank() == 4 && (s[0] == 1 || s[0] == batch) &&
                      (s[1] == 1 || s[1] == heads) && s[2] == queries && s[3] >= keys;
    if (!fits) return Fail(node, StrCat("attention_bias of shape ", s.ToString()));
    bias.data_ = tensor->data<float>();
    bias.row_ = s[3];
    bias.head_ = s[1] == 1 ? 0 : s[2] * s[3];
    bias.batch_ = s[0] == 1 ? 0 : s[1] * s[2] * s[3];
    return bias;
  }

  void Add(int64_t b, int64_t h, int64_t query, float* scores, int64_t keys) const {
    if (data_ == nullptr) return;
    const float* from = data_ + b * batch_ + h * head_ + query * row_;
    math::CurrentSimd().binary(math::Binary::kAdd, scores, from, scores, keys, 1, 1);
  }

 private:
  const float* data_ = nullptr;
  int64_t batch_ = 0, head_ = 0, row_ = 0;
};

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
  if (s.rank() != 5 || s[2] != heads || s[3] != 3) return Fail(node, "packed query of a bad shape");
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

Status CheckPast(const Node& node, const Tensor* past, int64_t batch, int64_t heads, int64_t size) {
  if (past == nullptr) return Status::Ok();
  const Shape& s = past->shape();
  if (s.rank() == 4 && s[0] == batch && s[1] == heads && s[3] == size) return Status::Ok();
  return Fail(node, StrCat("past of shape ", s.ToString()));
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
    if (!rank3 && !rank4) return Fail(node, StrCat("operand ", i, " of shape ", s.ToString()));
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
    if (bias->ElementCount() != at) return Fail(node, "bias has the wrong length");
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
  if (q.size != k.size || k.length != v.length) return Fail(node, "query, key and value differ");
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
    const auto change = [&](int64_t i, float* scores) {
      score_bias.Add(b, h, i, scores, k.length);
      for (int64_t j = 0; mask.given() && j < k.length; ++j) {
        if (mask.Hides(b, i, j)) scores[j] += hidden;
      }
      if (causal) {
        const int64_t seen = std::min(k.length, past + i + 1);
        std::fill(scores + seen, scores + k.length, kMinusInfinity);
      }
    };
    runner.Run(
        {q.length, k.length, q.size, v.size, q.rows.At(b, h), k.rows.At(b, h), v.rows.At(b, h),
         q.rows.row, k.rows.row, v.rows.row, to + b * q.length * width + h * v.size, width, scale},
        kMinusInfinity, change);
  };
  ForLanes(call.pool, batch * heads, q.length * k.length * q.size, run_head);
  return Values{std::move(out), ValueOf(k), ValueOf(v)};
}

// Sizes and lengths of one GroupQueryAttention call.
struct GroupPlan {
  int64_t batch, sequence, heads, key_heads, size, held, total;
  std::vector<int64_t> past;  // valid rows of each batch entry's cache
};

// What follows from query, key, value and the past ones, inputs 0 to 4.
Result<GroupPlan> PlanHeads(const Node& node, std::span<const Value> inputs) {
  GroupPlan p{};
  const Shape& q = inputs[0].tensor().shape();
  p.heads = node.attributes.Int("num_heads", 0);
  p.key_heads = node.attributes.Int("kv_num_heads", 0);
  const bool packed = TensorAt(inputs, 1) == nullptr;
  const int64_t lanes = packed ? p.heads + 2 * p.key_heads : p.heads;
  const bool fits = q.rank() == 3 && p.heads > 0 && p.key_heads > 0 && p.heads % p.key_heads == 0 &&
                    q[2] % lanes == 0;
  if (!fits) return Fail(node, "query");
  p.batch = q[0];
  p.sequence = q[1];
  p.size = q[2] / lanes;
  for (const size_t i : {1, 2}) {
    const Tensor* t = TensorAt(inputs, i);
    if (!packed &&
        (t == nullptr || !(t->shape() == Shape{p.batch, p.sequence, p.key_heads * p.size}))) {
      return Fail(node, StrCat("operand ", i, " does not fit the query"));
    }
  }
  for (const size_t i : {3, 4}) {
    ONNXD_RETURN_IF_ERROR(CheckPast(node, TensorAt(inputs, i), p.batch, p.key_heads, p.size));
  }
  const Tensor* past = TensorAt(inputs, 3);
  p.held = past != nullptr ? past->shape()[2] : 0;
  return p;
}

// Inputs 5 and 6: the last valid position of each batch entry, and the longest sequence.
Result<GroupPlan> PlanGroups(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(GroupPlan p, PlanHeads(node, inputs));
  const auto lengths = ElementsAs<int64_t>(inputs[5].tensor());
  const auto total = ElementsAs<int64_t>(inputs[6].tensor());
  if (static_cast<int64_t>(lengths.size()) != p.batch || total.size() != 1) {
    return Fail(node, "seqlens_k or total_sequence_length do not fit");
  }
  const bool first = p.sequence == total[0];
  p.total = std::max(total[0], p.held);
  for (const int64_t length : lengths) {
    p.past.push_back(first ? 0 : length + 1 - p.sequence);
    const bool fits =
        p.past.back() >= 0 && p.past.back() <= p.held && p.past.back() + p.sequence <= p.total;
    if (!fits) return Fail(node, StrCat("a sequence length of ", length));
  }
  return p;
}

// Rows of one kind of head, [batch, heads, sequence, size], rotated where `rotate` is given.
using RotateRow = std::function<Status(int64_t batch, int64_t step, const float* in, float* out)>;

Result<std::vector<float>> Gather(const GroupPlan& p, const Tensor& x, int64_t first_lane,
                                  int64_t heads, int64_t lanes, const RotateRow& rotate) {
  std::vector<float> out(static_cast<size_t>(p.batch * heads * p.sequence * p.size));
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t s = 0; s < p.sequence; ++s) {
      for (int64_t h = 0; h < heads; ++h) {
        const float* from =
            x.data<float>() + ((b * p.sequence + s) * lanes + first_lane + h) * p.size;
        float* to = out.data() + ((b * heads + h) * p.sequence + s) * p.size;
        if (rotate) {
          ONNXD_RETURN_IF_ERROR(rotate(b, s, from, to));
        } else {
          std::copy_n(from, p.size, to);
        }
      }
    }
  }
  return out;
}

// The cache, output `index`, with the new rows written behind the valid ones of each batch entry.
Result<Tensor> Present(const GroupPlan& p, const EagerCall& call, const Tensor* past,
                       const std::vector<float>& fresh, size_t index) {
  ONNXD_ASSIGN_OR_RETURN(Tensor out, call.MakeOutput(index, DataType::kFloat,
                                                     Shape{p.batch, p.key_heads, p.total, p.size}));
  float* const to = out.mutable_data<float>();
  const auto fill = [&](int64_t first, int64_t last) {
    for (int64_t lane = first; lane < last; ++lane) {
      float* rows = to + lane * p.total * p.size;
      if (past != nullptr) {
        std::copy_n(past->data<float>() + lane * p.held * p.size, p.held * p.size, rows);
      }
      std::fill_n(rows + p.held * p.size, (p.total - p.held) * p.size, 0.0f);
      const int64_t begin = p.past[static_cast<size_t>(lane / p.key_heads)];
      std::copy_n(fresh.data() + lane * p.sequence * p.size, p.sequence * p.size,
                  rows + begin * p.size);
    }
  };
  const int64_t lanes = p.batch * p.key_heads;
  call.pool.ParallelFor(lanes, std::max<int64_t>(1, kLeastCopied / (p.total * p.size + 1)), fill);
  return out;
}

// `given`: positions, or nullptr for those behind the past ones.
Result<RotateRow> MakeRotation(const Node& node, const GroupPlan& p, const Tensor* cos,
                               const Tensor* sin, const Tensor* given) {
  if (node.attributes.Int("do_rotary", 0) == 0) return RotateRow();
  if (cos == nullptr || sin == nullptr || cos->shape().rank() != 2 ||
      !(cos->shape() == sin->shape()) || 2 * cos->shape()[1] > p.size) {
    return Fail(node, "do_rotary needs cos_cache and sin_cache");
  }
  std::vector<int64_t> positions;
  if (given != nullptr) positions = ElementsAs<int64_t>(*given);
  if (!positions.empty() && static_cast<int64_t>(positions.size()) != p.batch * p.sequence) {
    return Fail(node, "position_ids do not fit");
  }
  const bool interleaved = node.attributes.Int("rotary_interleaved", 0) != 0;
  return RotateRow([=, &node, &p](int64_t b, int64_t s, const float* in, float* out) -> Status {
    const int64_t position = positions.empty() ? p.past[static_cast<size_t>(b)] + s
                                               : positions[static_cast<size_t>(b * p.sequence + s)];
    const int64_t width = cos->shape()[1];
    if (position < 0 || position >= cos->shape()[0]) {
      return Fail(node, StrCat("position ", position, " is outside the cache"));
    }
    Rotate(in, out, p.size, 2 * width, interleaved, cos->data<float>() + position * width,
           sin->data<float>() + position * width);
    return Status::Ok();
  });
}

// RMS normalization of a head, then the rotation. `weight`: [size], or nullptr for none.
Result<RotateRow> WithHeadNorm(const Node& node, const GroupPlan& p, const Tensor* weight,
                               RotateRow rotate) {
  if (weight == nullptr) return rotate;
  if (weight->ElementCount() != p.size) return Fail(node, "a norm weight does not fit the heads");
  const float epsilon = node.attributes.Float("qk_norm_epsilon", 1e-6f);
  return RotateRow([=, normalized = std::vector<float>(static_cast<size_t>(p.size)), size = p.size](
                       int64_t b, int64_t s, const float* in, float* out) mutable -> Status {
    const math::Simd& simd = math::CurrentSimd();
    const float square = simd.sum_of_squares(in, size, 0.0f) / static_cast<float>(size);
    float* to = rotate ? normalized.data() : out;
    simd.normalize(in, to, size, 0.0f, 1.0f / std::sqrt(square + epsilon), weight->data<float>(),
                   nullptr);
    return rotate ? rotate(b, s, to, out) : Status::Ok();
  });
}

struct GroupRows {
  std::vector<float> q, k, v;  // [batch, heads or key heads, sequence, size]
};

// Of inputs 0 to 2, or of input 0 alone where query, key and value lie behind each other.
Result<GroupRows> GatherRows(const GroupPlan& p, std::span<const Value> inputs,
                             const RotateRow& turn_query, const RotateRow& turn_key) {
  const bool packed = TensorAt(inputs, 1) == nullptr;
  const int64_t all = p.heads + 2 * p.key_heads;
  const auto source = [&](size_t i) -> const Tensor& { return inputs[packed ? 0 : i].tensor(); };
  GroupRows rows;
  ONNXD_ASSIGN_OR_RETURN(rows.q,
                         Gather(p, source(0), 0, p.heads, packed ? all : p.heads, turn_query));
  ONNXD_ASSIGN_OR_RETURN(rows.k, Gather(p, source(1), packed ? p.heads : 0, p.key_heads,
                                        packed ? all : p.key_heads, turn_key));
  ONNXD_ASSIGN_OR_RETURN(rows.v, Gather(p, source(2), packed ? p.heads + p.key_heads : 0,
                                        p.key_heads, packed ? all : p.key_heads, RotateRow()));
  return rows;
}

using ChangeGroupRow =
    std::function<void(int64_t batch, int64_t head, int64_t query, float* scores, int64_t keys)>;

struct GroupRun {
  const std::vector<float>& q;
  const Tensor &keys, &values;
  float scale;
  std::function<float(int64_t head)> extra;
  ChangeGroupRow change;
};

// Every head of the query over the rows of its key head: [batch, sequence, heads * size].
Result<Tensor> RunGroups(const GroupPlan& p, const EagerCall& call, const GroupRun& run) {
  const int64_t width = p.heads * p.size, share = p.heads / p.key_heads;
  ONNXD_ASSIGN_OR_RETURN(Tensor out,
                         call.MakeOutput(0, DataType::kFloat, Shape{p.batch, p.sequence, width}));
  float* const to = out.mutable_data<float>();
  const HeadRows keys = CacheRows(run.keys.data<float>(), p.key_heads, p.total, p.size);
  const HeadRows values = CacheRows(run.values.data<float>(), p.key_heads, p.total, p.size);
  const auto run_head = [&](HeadRunner& runner, int64_t lane) {
    const int64_t b = lane / p.heads, h = lane % p.heads;
    const int64_t length = p.past[static_cast<size_t>(b)] + p.sequence;
    runner.Run({p.sequence, length, p.size, p.size, run.q.data() + lane * p.sequence * p.size,
                keys.At(b, h / share), values.At(b, h / share), p.size, p.size, p.size,
                to + b * p.sequence * width + h * p.size, width, run.scale},
               run.extra(h),
               [&](int64_t i, float* scores) { run.change(b, h, i, scores, length); });
  };
  ForLanes(call.pool, p.batch * p.heads, p.sequence * p.total * p.size, run_head);
  return out;
}

Result<Values> GroupQueryAttention(const EagerCall& call) {
  const Node& node = call.node;
  const std::span<const Value> inputs = call.inputs;
  const Attributes& a = node.attributes;
  if (TensorAt(inputs, 12) != nullptr || TensorAt(inputs, 13) != nullptr ||
      a.Int("sliding_window_cache", 0) != 0) {
    return Unimplemented(
        StrCat(Describe(node), ": quantized and sliding caches are not supported"));
  }
  ONNXD_ASSIGN_OR_RETURN(const GroupPlan p, PlanGroups(node, inputs));
  ONNXD_ASSIGN_OR_RETURN(
      const RotateRow rotate,
      MakeRotation(node, p, TensorAt(inputs, 7), TensorAt(inputs, 8), TensorAt(inputs, 9)));
  ONNXD_ASSIGN_OR_RETURN(const RotateRow turn_query,
                         WithHeadNorm(node, p, TensorAt(inputs, 14), rotate));
  ONNXD_ASSIGN_OR_RETURN(const RotateRow turn_key,
                         WithHeadNorm(node, p, TensorAt(inputs, 15), rotate));
  ONNXD_ASSIGN_OR_RETURN(const GroupRows rows, GatherRows(p, inputs, turn_query, turn_key));
  ONNXD_ASSIGN_OR_RETURN(Tensor keys, Present(p, call, TensorAt(inputs, 3), rows.k, 1));
  ONNXD_ASSIGN_OR_RETURN(Tensor values, Present(p, call, TensorAt(inputs, 4), rows.v, 2));
  int64_t longest = p.sequence;
  for (const int64_t past : p.past) longest = std::max(longest, past + p.sequence);
  ONNXD_ASSIGN_OR_RETURN(
      const ScoreBias score_bias,
      ScoreBias::Make(node, TensorAt(inputs, 10), p.batch, p.heads, p.sequence, longest));
  std::vector<float> sinks;
  if (const Tensor* sink = TensorAt(inputs, 11)) sinks = ElementsAs<float>(*sink);
  if (!sinks.empty() && static_cast<int64_t>(sinks.size()) != p.heads)
    return Fail(node, "head_sink");
  const bool smooth = a.Int("smooth_softmax", 0) > 0;
  const float softcap = a.Float("softcap", 0);
  const int64_t window = a.Int("local_window_size", -1);
  const bool causal = a.Int("causal", 1) != 0;
  float scale = a.Float("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<float>(p.size));
  const auto extra = [&](int64_t h) {
    if (!sinks.empty()) return sinks[static_cast<size_t>(h)];
    return smooth ? 0.0f : kMinusInfinity;
  };
  const auto change = [&](int64_t b, int64_t h, int64_t i, float* scores, int64_t length) {
    const int64_t past = p.past[static_cast<size_t>(b)];
    for (int64_t j = 0; softcap > 0 && j < length; ++j) {
      scores[j] = softcap * std::tanh(scores[j] / softcap);
    }
    score_bias.Add(b, h, i, scores, length);
    for (int64_t j = 0; j < length; ++j) {
      const bool hidden = (causal && j > past + i) || (window > 0 && past + i - j >= window);
      if (hidden) scores[j] = kMinusInfinity;
    }
  };
  ONNXD_ASSIGN_OR_RETURN(Tensor out,
                         RunGroups(p, call, {rows.q, keys, values, scale, extra, change}));
  return Values{std::move(out), std::move(keys), std::move(values)};
}

// Which blocks of keys each block of queries sees, one layout per head in turn. Compressed rows:
// begins [layouts, blocks + 1] into columns [layouts, count].
class BlockLayouts {
 public:
  static Result<BlockLayouts> Make(const Node& node, const Tensor& begins, const Tensor& columns) {
    BlockLayouts layouts;
    const Shape &b = begins.shape(), &c = columns.shape();
    if (b.rank() != 2 || c.rank() != 2 || b[0] != c[0] || b[0] < 1 || b[1] < 2) {
      return Fail(node, StrCat("block_row_indices ", b.ToString(), " and block_col_indices ",
                               c.ToString(), " do not fit"));
    }
    layouts.count_ = b[0];
    layouts.rows_ = b[1] - 1;
    layouts.width_ = c[1];
    layouts.begins_ = ElementsAs<int32_t>(begins);
    layouts.columns_ = ElementsAs<int32_t>(columns);
    for (const int32_t begin : layouts.begins_) {
      if (begin < 0 || begin > c[1]) return Fail(node, StrCat("block_row_indices has ", begin));
    }
    return layouts;
  }

  int64_t rows() const { return rows_; }

  // Sets seen[block] for the blocks of keys that block `row` of head h sees.
  void Seen(int64_t h, int64_t row, std::vector<char>& seen) const {
    std::fill(seen.begin(), seen.end(), 0);
    const int64_t layout = h % count_;
    const int32_t* begin = begins_.data() + layout * (rows_ + 1) + row;
    for (int64_t i = begin[0]; i < begin[1]; ++i) {
      const int32_t column = columns_[static_cast<size_t>(layout * width_ + i)];
      if (column >= 0 && column < static_cast<int64_t>(seen.size())) {
        seen[static_cast<size_t>(column)] = 1;
      }
    }
  }

 private:
  int64_t count_ = 0, rows_ = 0, width_ = 0;
  std::vector<int32_t> begins_, columns_;
};

// Inputs 7 and 8: the longest sequence and all lengths, with the new rows.
Result<GroupPlan> PlanSparse(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(GroupPlan p, PlanHeads(node, inputs));
  const auto total = ElementsAs<int64_t>(inputs[7].tensor());
  const auto lengths = ElementsAs<int64_t>(inputs[8].tensor());
  if (static_cast<int64_t>(lengths.size()) != p.batch || total.size() != 1) {
    return Fail(node, "total_sequence_length or key_total_sequence_lengths do not fit");
  }
  p.total = p.held;
  for (const int64_t length : lengths) {
    p.past.push_back(p.sequence == total[0] ? 0 : length - p.sequence);
    if (length < 0 || p.past.back() < 0 || p.past.back() + p.sequence > p.held) {
      return Fail(node, StrCat("a sequence length of ", length));
    }
  }
  return p;
}

Result<Values> SparseAttention(const EagerCall& call) {
  const Node& node = call.node;
  const std::span<const Value> inputs = call.inputs;
  const Attributes& a = node.attributes;
  ONNXD_ASSIGN_OR_RETURN(const GroupPlan p, PlanSparse(node, inputs));
  ONNXD_ASSIGN_OR_RETURN(const RotateRow rotate,
                         MakeRotation(node, p, TensorAt(inputs, 9), TensorAt(inputs, 10), nullptr));
  ONNXD_ASSIGN_OR_RETURN(const GroupRows rows, GatherRows(p, inputs, rotate, rotate));
  ONNXD_ASSIGN_OR_RETURN(Tensor keys, Present(p, call, TensorAt(inputs, 3), rows.k, 1));
  ONNXD_ASSIGN_OR_RETURN(Tensor values, Present(p, call, TensorAt(inputs, 4), rows.v, 2));
  ONNXD_ASSIGN_OR_RETURN(const BlockLayouts layouts,
                         BlockLayouts::Make(node, inputs[5].tensor(), inputs[6].tensor()));
  const int64_t block = a.Int("sparse_block_size", 0);
  if (block < 1 || p.held > layouts.rows() * block) {
    return Fail(node, StrCat("sparse_block_size ", block, " with ", layouts.rows(), " blocks"));
  }
  float scale = a.Float("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<float>(p.size));
  const auto change = [&](int64_t b, int64_t h, int64_t i, float* scores, int64_t length) {
    std::vector<char> seen(static_cast<size_t>(layouts.rows()));
    const int64_t query = p.past[static_cast<size_t>(b)] + i;
    layouts.Seen(h, query / block, seen);
    for (int64_t j = 0; j < length; ++j) {
      if (j > query || seen[static_cast<size_t>(j / block)] == 0) scores[j] = kMinusInfinity;
    }
  };
  const auto extra = [](int64_t) { return kMinusInfinity; };
  ONNXD_ASSIGN_OR_RETURN(Tensor out,
                         RunGroups(p, call, {rows.q, keys, values, scale, extra, change}));
  return Values{std::move(out), std::move(keys), std::move(values)};
}

Result<std::unique_ptr<Kernel>> FloatOnly(const KernelInfo& info, std::unique_ptr<Kernel> kernel) {
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType(info.node.op_type, info.InputType(0));
  }
  return kernel;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeMultiHeadAttention(const KernelInfo& info) {
  return FloatOnly(info, MakeEagerCallKernel(MultiHeadAttention));
}
Result<std::unique_ptr<Kernel>> MakeGroupQueryAttention(const KernelInfo& info) {
  if (info.node.output(3) != kNoValue) return Unimplemented("output_qk is not supported");
  return FloatOnly(info, MakeEagerCallKernel(GroupQueryAttention));
}
Result<std::unique_ptr<Kernel>> MakeSparseAttention(const KernelInfo& info) {
  return FloatOnly(info, MakeEagerCallKernel(SparseAttention));
}

}  // namespace onnxd
