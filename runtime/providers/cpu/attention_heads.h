// What com.microsoft's attention operators share: one head by one thread, and what is said of its
// operands.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "runtime/base/ceil_divide.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/one_query.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {

constexpr int64_t kLeastCopied = 1 << 14;      // floats, for a thread
constexpr int64_t kLeastMultiplied = 1 << 16;  // products, for a thread
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

inline Status FailAttention(const Node& node, std::string_view why) {
  return InvalidArgument(StrCat(Describe(node), ": ", why));
}

// Rows of heads, [batch, heads, length, size], wherever they lie.
struct HeadRows {
  const float* first = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // strides

  const float* At(int64_t b, int64_t h) const { return first + b * batch + h * head; }
};

// Rows that lie behind each other, as caches have them.
inline HeadRows CacheRows(const float* first, int64_t heads, int64_t length, int64_t size) {
  return {first, heads * length * size, length * size, size};
}

// One head: out[queries, value] = softmax(scale * q k^T, changed by `change`) v.
struct AttentionHead {
  int64_t queries, keys, size, value;
  const float *q, *k, *v;
  int64_t q_stride, k_stride, v_stride;
  float* out;
  int64_t out_stride;
  float scale;
  int64_t seen;  // keys that the first query sees, at least one; each later one sees one more

  int64_t SeenBy(int64_t query) const { return std::min(keys, seen + query); }
};

// Changes the scores of one query, of those keys that it sees, in place.
using ChangeRow = std::function<void(int64_t query, float* scores, int64_t keys)>;

// One thread. A single query, as a text is written, reads keys and values once; more of them are
// worth packing these, and are taken in blocks whose scores stay in the cache.
class HeadRunner {
 public:
  // `extra`: added to the denominator of the softmax, as a logarithm; -infinity: nothing.
  void Run(const AttentionHead& h, float extra, const ChangeRow& change) {
    const math::Simd& simd = math::CurrentSimd();
    const int64_t block = std::min(h.queries, kMostQueries);
    Prepare(scores_, block * h.keys);
    float* const scores = scores_.mutable_data<float>();
    if (h.queries == 1) {
      const int64_t seen = h.SeenBy(0);
      MultiplyQuery(h.q, h.k, h.k_stride, seen, h.size, scores);
      Weigh(h, 0, scores, seen, extra, change);
      return simd.weigh_rows(h.v, h.v_stride, seen, scores, h.out, h.value);
    }
    Prepare(keys_, math::PackedBSize(simd, h.size, h.keys));
    Prepare(values_, math::PackedBSize(simd, h.keys, h.value));
    float *const keys = keys_.mutable_data<float>(), *const values = values_.mutable_data<float>();
    simd.pack_b(h.k, h.k_stride, true, h.size, h.keys, keys);
    simd.pack_b(h.v, h.v_stride, false, h.keys, h.value, values);
    for (int64_t first = 0; first < h.queries; first += block) {
      const int64_t rows = std::min(block, h.queries - first);
      const int64_t seen = h.SeenBy(first + rows - 1);
      simd.gemm({rows, seen, h.size, h.q + first * h.q_stride, h.q_stride, keys, scores, h.keys});
      for (int64_t i = 0; i < rows; ++i) {
        Weigh(h, first + i, scores + i * h.keys, seen, extra, change);
      }
      math::GemmArguments weighted{
          rows, h.value, seen, scores, h.keys, values, h.out + first * h.out_stride, h.out_stride};
      weighted.panel_rows = h.keys;
      simd.gemm(weighted);
    }
  }

 private:
  static constexpr int64_t kMostQueries = 60;

  // What becomes of the scores of a query, of which its block reads `keys`.
  static void Weigh(const AttentionHead& h, int64_t query, float* row, int64_t keys, float extra,
                    const ChangeRow& change) {
    const math::Simd& simd = math::CurrentSimd();
    const int64_t seen = h.SeenBy(query);
    std::fill(row + seen, row + keys, 0.0f);
    simd.affine(row, row, seen, h.scale, 0.0f);
    change(query, row, seen);
    const float largest = std::max(simd.max(row, seen), extra);
    if (largest == kMinusInfinity) {
      std::fill_n(row, seen, 0.0f);
      return;
    }
    float sum = simd.exp_sum(row, row, seen, largest, 1.0f);
    if (extra != kMinusInfinity) sum += std::exp(extra - largest);
    simd.affine(row, row, seen, 1.0f / sum, 0.0f);
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
    if (!fits) return FailAttention(node, StrCat("attention_bias of shape ", s.ToString()));
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

inline Status CheckPast(const Node& node, const Tensor* past, int64_t batch, int64_t heads,
                        int64_t size) {
  if (past == nullptr) return Status::Ok();
  const Shape& s = past->shape();
  if (s.rank() == 4 && s[0] == batch && s[1] == heads && s[3] == size) return Status::Ok();
  return FailAttention(node, StrCat("past of shape ", s.ToString()));
}

inline Result<std::unique_ptr<Kernel>> FloatOnly(const KernelInfo& info,
                                                 std::unique_ptr<Kernel> kernel) {
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType(info.node.op_type, info.InputType(0));
  }
  return kernel;
}

}  // namespace onnxd
