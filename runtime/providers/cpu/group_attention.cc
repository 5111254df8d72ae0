// com.microsoft GroupQueryAttention and SparseAttention.
// Source of the semantics: onnxruntime's ContribOperators document.
#include <algorithm>
#include <cmath>
#include <functional>

#include "runtime/providers/cpu/attention_heads.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

// Rotates pairs of the first `rotated` elements of one head; `out` may be `in`.
void Rotate(const float* in, float* out, int64_t size, int64_t rotated, bool interleaved,
            const float* cos, const float* sin) {
  const int64_t half = rotated / 2;
  for (int64_t d = 0; d < half; ++d) {
    const int64_t first = interleaved ? 2 * d : d, second = interleaved ? 2 * d + 1 : d + half;
    const float real = in[first], imaginary = in[second];
    out[first] = cos[d] * real - sin[d] * imaginary;
    out[second] = sin[d] * real + cos[d] * imaginary;
  }
  if (in != out) std::copy_n(in + rotated, size - rotated, out + rotated);
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
  if (!fits) return FailAttention(node, "query");
  p.batch = q[0];
  p.sequence = q[1];
  p.size = q[2] / lanes;
  for (const size_t i : {1, 2}) {
    const Tensor* t = TensorAt(inputs, i);
    if (!packed &&
        (t == nullptr || !(t->shape() == Shape{p.batch, p.sequence, p.key_heads * p.size}))) {
      return FailAttention(node, StrCat("operand ", i, " does not fit the query"));
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
    return FailAttention(node, "seqlens_k or total_sequence_length do not fit");
  }
  const bool first = p.sequence == total[0];
  p.total = std::max(total[0], p.held);
  for (const int64_t length : lengths) {
    p.past.push_back(first ? 0 : length + 1 - p.sequence);
    const bool fits =
        p.past.back() >= 0 && p.past.back() <= p.held && p.past.back() + p.sequence <= p.total;
    if (!fits) return FailAttention(node, StrCat("a sequence length of ", length));
  }
  return p;
}

// Changes a row of one head, which may lie in `out` already. Any thread.
using RotateRow = std::function<void(int64_t batch, int64_t step, const float* in, float* out)>;

// The rows of one kind of head, [batch, heads, sequence, size], rotated where `rotate` is given.
std::vector<float> Gather(const GroupPlan& p, ThreadPool& pool, const Tensor& x, int64_t first_lane,
                          int64_t heads, int64_t lanes, const RotateRow& rotate) {
  std::vector<float> out(static_cast<size_t>(p.batch * heads * p.sequence * p.size));
  const auto gather = [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const int64_t b = row / p.sequence, s = row % p.sequence;
      for (int64_t h = 0; h < heads; ++h) {
        const float* from = x.data<float>() + (row * lanes + first_lane + h) * p.size;
        float* to = out.data() + ((b * heads + h) * p.sequence + s) * p.size;
        if (rotate) {
          rotate(b, s, from, to);
        } else {
          std::copy_n(from, p.size, to);
        }
      }
    }
  };
  const int64_t grain = std::max<int64_t>(1, kLeastCopied / (heads * p.size + 1));
  pool.ParallelFor(p.batch * p.sequence, grain, gather);
  return out;
}

// The cache, output `index`, with the new rows written behind the valid ones of each batch entry.
Result<Tensor> Present(const GroupPlan& p, const EagerCall& call, const Tensor* past,
                       const std::vector<float>& fresh, size_t index) {
  ONNXD_ASSIGN_OR_RETURN(Tensor out, call.MakeOutput(index, DataType::kFloat,
                                                     Shape{p.batch, p.key_heads, p.total, p.size}));
  float* const to = out.mutable_data<float>();
  const bool stays = past != nullptr && to == past->data<float>();
  const auto fill = [&](int64_t first, int64_t last) {
    for (int64_t lane = first; lane < last; ++lane) {
      float* rows = to + lane * p.total * p.size;
      if (past != nullptr && !stays) {
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
    return FailAttention(node, "do_rotary needs cos_cache and sin_cache");
  }
  std::vector<int64_t> positions;
  if (given != nullptr) {
    positions = ElementsAs<int64_t>(*given);
    if (static_cast<int64_t>(positions.size()) != p.batch * p.sequence) {
      return FailAttention(node, "position_ids do not fit");
    }
  } else {
    for (const int64_t past : p.past) {
      for (int64_t s = 0; s < p.sequence; ++s) positions.push_back(past + s);
    }
  }
  for (const int64_t position : positions) {
    if (position < 0 || position >= cos->shape()[0]) {
      return FailAttention(node, StrCat("position ", position, " is outside the cache"));
    }
  }
  const bool interleaved = node.attributes.Int("rotary_interleaved", 0) != 0;
  return RotateRow([=, positions = std::move(positions), size = p.size, sequence = p.sequence](
                       int64_t b, int64_t s, const float* in, float* out) {
    const int64_t width = cos->shape()[1];
    const int64_t row = positions[static_cast<size_t>(b * sequence + s)] * width;
    Rotate(in, out, size, 2 * width, interleaved, cos->data<float>() + row,
           sin->data<float>() + row);
  });
}

// RMS normalization of a head, then the rotation. `weight`: [size], or nullptr for none.
Result<RotateRow> WithHeadNorm(const Node& node, const GroupPlan& p, const Tensor* weight,
                               RotateRow rotate) {
  if (weight == nullptr) return rotate;
  if (weight->ElementCount() != p.size)
    return FailAttention(node, "a norm weight does not fit the heads");
  const float epsilon = node.attributes.Float("qk_norm_epsilon", 1e-6f);
  return RotateRow([=, rotate = std::move(rotate), size = p.size](int64_t b, int64_t s,
                                                                  const float* in, float* out) {
    const math::Simd& simd = math::CurrentSimd();
    const float square = simd.sum_of_squares(in, size, 0.0f) / static_cast<float>(size);
    simd.normalize(in, out, size, 0.0f, 1.0f / std::sqrt(square + epsilon), weight->data<float>(),
                   nullptr);
    if (rotate) rotate(b, s, out, out);
  });
}

struct GroupRows {
  std::vector<float> q, k, v;  // [batch, heads or key heads, sequence, size]
};

// Of inputs 0 to 2, or of input 0 alone where query, key and value lie behind each other.
GroupRows GatherRows(const GroupPlan& p, const EagerCall& call, const RotateRow& turn_query,
                     const RotateRow& turn_key) {
  const bool packed = TensorAt(call.inputs, 1) == nullptr;
  const int64_t all = p.heads + 2 * p.key_heads;
  const auto gather = [&](size_t i, int64_t first_lane, int64_t heads, const RotateRow& rotate) {
    return Gather(p, call.pool, call.inputs[packed ? 0 : i].tensor(), packed ? first_lane : 0,
                  heads, packed ? all : heads, rotate);
  };
  return {gather(0, 0, p.heads, turn_query), gather(1, p.heads, p.key_heads, turn_key),
          gather(2, p.heads + p.key_heads, p.key_heads, RotateRow())};
}

using ChangeGroupRow =
    std::function<void(int64_t batch, int64_t head, int64_t query, float* scores, int64_t keys)>;

struct GroupRun {
  const std::vector<float>& q;
  const Tensor &keys, &values;
  float scale;
  bool causal;
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
                to + b * p.sequence * width + h * p.size, width, run.scale,
                run.causal ? length - p.sequence + 1 : length},
               run.extra(h),
               [&](int64_t i, float* scores, int64_t keys) { run.change(b, h, i, scores, keys); });
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
  const GroupRows rows = GatherRows(p, call, turn_query, turn_key);
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
    return FailAttention(node, "head_sink");
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
  const auto change = [&](int64_t b, int64_t h, int64_t i, float* scores, int64_t keys) {
    for (int64_t j = 0; softcap > 0 && j < keys; ++j) {
      scores[j] = softcap * std::tanh(scores[j] / softcap);
    }
    score_bias.Add(b, h, i, scores, keys);
    if (window <= 0) return;
    const int64_t before = p.past[static_cast<size_t>(b)] + i + 1 - window;
    std::fill_n(scores, std::clamp<int64_t>(before, 0, keys), kMinusInfinity);
  };
  ONNXD_ASSIGN_OR_RETURN(Tensor out,
                         RunGroups(p, call, {rows.q, keys, values, scale, causal, extra, change}));
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
      return FailAttention(node, StrCat("block_row_indices ", b.ToString(),
                                        " and block_col_indices ", c.ToString(), " do not fit"));
    }
    layouts.count_ = b[0];
    layouts.rows_ = b[1] - 1;
    layouts.width_ = c[1];
    layouts.begins_ = ElementsAs<int32_t>(begins);
    layouts.columns_ = ElementsAs<int32_t>(columns);
    for (const int32_t begin : layouts.begins_) {
      if (begin < 0 || begin > c[1])
        return FailAttention(node, StrCat("block_row_indices has ", begin));
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
    return FailAttention(node, "total_sequence_length or key_total_sequence_lengths do not fit");
  }
  p.total = p.held;
  for (const int64_t length : lengths) {
    p.past.push_back(p.sequence == total[0] ? 0 : length - p.sequence);
    if (length < 0 || p.past.back() < 0 || p.past.back() + p.sequence > p.held) {
      return FailAttention(node, StrCat("a sequence length of ", length));
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
  const GroupRows rows = GatherRows(p, call, rotate, rotate);
  ONNXD_ASSIGN_OR_RETURN(Tensor keys, Present(p, call, TensorAt(inputs, 3), rows.k, 1));
  ONNXD_ASSIGN_OR_RETURN(Tensor values, Present(p, call, TensorAt(inputs, 4), rows.v, 2));
  ONNXD_ASSIGN_OR_RETURN(const BlockLayouts layouts,
                         BlockLayouts::Make(node, inputs[5].tensor(), inputs[6].tensor()));
  const int64_t block = a.Int("sparse_block_size", 0);
  if (block < 1 || p.held > layouts.rows() * block) {
    return FailAttention(node,
                         StrCat("sparse_block_size ", block, " with ", layouts.rows(), " blocks"));
  }
  float scale = a.Float("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<float>(p.size));
  const auto change = [&](int64_t b, int64_t h, int64_t i, float* scores, int64_t keys) {
    std::vector<char> seen(static_cast<size_t>(layouts.rows()));
    const int64_t query = p.past[static_cast<size_t>(b)] + i;
    layouts.Seen(h, query / block, seen);
    for (int64_t j = 0; j < keys; ++j) {
      if (seen[static_cast<size_t>(j / block)] == 0) scores[j] = kMinusInfinity;
    }
  };
  const auto extra = [](int64_t) { return kMinusInfinity; };
  ONNXD_ASSIGN_OR_RETURN(Tensor out,
                         RunGroups(p, call, {rows.q, keys, values, scale, true, extra, change}));
  return Values{std::move(out), std::move(keys), std::move(values)};
}

// Output and input, of keys and of values.
std::vector<std::pair<int, int>> CachesInPlace() { return {{1, 3}, {2, 4}}; }

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGroupQueryAttention(const KernelInfo& info) {
  if (info.node.output(3) != kNoValue) return Unimplemented("output_qk is not supported");
  return FloatOnly(info, MakeEagerCallKernel(GroupQueryAttention, CachesInPlace()));
}
Result<std::unique_ptr<Kernel>> MakeSparseAttention(const KernelInfo& info) {
  return FloatOnly(info, MakeEagerCallKernel(SparseAttention, CachesInPlace()));
}

}  // namespace onnxd
