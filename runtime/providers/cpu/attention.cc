// Attention-23 to -25 (ai.onnx), in float. Source of the semantics: the operator's text and
// reference implementation in ONNX 1.23: scores = softcap(scale * Q K^T) + mask; a query row whose
// mask allows no key gives zeros.
#include "runtime/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/one_query.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

constexpr int64_t kLeastCopied = 1 << 14;  // floats, for a thread
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

enum class ScoresOutput { kProduct = 0, kSoftcapped = 1, kMasked = 2, kProbabilities = 3 };

struct Settings {
  float scale, softcap;
  bool causal;
  int64_t left_window, right_window;  // -1: unbounded
  ScoresOutput scores_output;
};

struct Mask {
  bool present = false;
  DataType type = DataType::kUndefined;
  AttentionMask view;
};

// Rows of a head: [sequence, head size] at a stride.
struct Rows {
  const float* data;
  int64_t stride;
};

struct Layout {
  int64_t batch, head, row;

  const float* At(const float* base, int64_t b, int64_t h) const {
    return base + b * batch + h * head;
  }
};

Layout LayoutOf(bool split_heads, int64_t heads, int64_t sequence, int64_t size) {
  if (split_heads) return {heads * sequence * size, sequence * size, size};
  return {sequence * heads * size, size, heads * size};
}

struct Plan {
  AttentionSizes sizes;
  Settings settings;
  Mask mask;
  bool has_lengths, wants_key, wants_value, wants_scores;
  int64_t chunks;
  int64_t chunk_floats, packed_keys, packed_values;  // of a chunk's scratch
  int64_t present_key_floats, present_value_floats;  // scratch when there is a past but no output
};

// present[b, h] = past rows, then new rows.
void Concatenate(const AttentionSizes& s, ThreadPool& pool, const float* past, const float* fresh,
                 int64_t size, float* present) {
  const Layout layout = LayoutOf(s.split_heads, s.key_heads, s.keys, size);
  const auto fill = [&](int64_t first, int64_t last) {
    for (int64_t lane = first; lane < last; ++lane) {
      float* to = present + lane * s.total() * size;
      if (past != nullptr) std::copy_n(past + lane * s.past * size, s.past * size, to);
      const float* from = layout.At(fresh, lane / s.key_heads, lane % s.key_heads);
      for (int64_t row = 0; row < s.keys; ++row) {
        std::copy_n(from + row * layout.row, size, to + (s.past + row) * size);
      }
    }
  };
  pool.ParallelFor(s.batch * s.key_heads,
                   std::max<int64_t>(1, kLeastCopied / (s.total() * size + 1)), fill);
}

class HeadRun {
 public:
  HeadRun(const Plan& plan, const KernelContext& k, float* scratch)
      : plan_(plan), k_(k), scores_(scratch) {
    const AttentionSizes& s = plan.sizes;
    bias_ = scores_ + s.queries * s.total();
    packed_keys_ = scratch + (s.queries * s.total() + s.total() + 15) / 16 * 16;
    packed_values_ = packed_keys_ + plan.packed_keys;
  }

  void Run(int64_t b, int64_t h, Rows q, Rows key, Rows value, float* out, int64_t out_stride) {
    const AttentionSizes& s = plan_.sizes;
    const math::Simd& simd = math::CurrentSimd();
    const int64_t total = s.total();
    if (s.queries == 1) {
      MultiplyQuery(q.data, key.data, key.stride, total, s.head, scores_);
    } else {
      simd.pack_b(key.data, key.stride, true, s.head, total, packed_keys_);
      simd.gemm({s.queries, total, s.head, q.data, q.stride, packed_keys_, scores_, total});
    }
    simd.affine(scores_, scores_, s.queries * total, plan_.settings.scale, 0.0f);
    float* report = plan_.wants_scores
                        ? k_.output<float>(3) + (b * s.query_heads + h) * s.queries * total
                        : nullptr;
    Report(ScoresOutput::kProduct, report);
    if (plan_.settings.softcap > 0) {
      for (int64_t i = 0; i < s.queries * total; ++i) {
        scores_[i] = plan_.settings.softcap * std::tanh(scores_[i] / plan_.settings.softcap);
      }
    }
    Report(ScoresOutput::kSoftcapped, report);
    for (int64_t row = 0; row < s.queries; ++row) MaskAndNormalize(b, h, row, report);
    Report(ScoresOutput::kProbabilities, report);
    if (s.queries == 1) {
      return simd.weigh_rows(value.data, value.stride, total, scores_, out, s.value_head);
    }
    simd.pack_b(value.data, value.stride, false, total, s.value_head, packed_values_);
    simd.gemm({s.queries, s.value_head, total, scores_, total, packed_values_, out, out_stride});
  }

 private:
  void Report(ScoresOutput stage, float* report) const {
    if (report == nullptr || plan_.settings.scores_output != stage) return;
    std::copy_n(scores_, plan_.sizes.queries * plan_.sizes.total(), report);
  }

  float MaskAt(int64_t b, int64_t h, int64_t row, int64_t column) const {
    const Mask& mask = plan_.mask;
    if (column >= mask.view.keys) return kMinusInfinity;
    const auto& strides = mask.view.strides;
    const int64_t at = b * strides[0] + h * strides[1] + row * strides[2] + column * strides[3];
    if (mask.type == DataType::kBool) return k_.input<bool>(3)[at] ? 0.0f : kMinusInfinity;
    if (mask.type == DataType::kFloat) return k_.input<float>(3)[at];
    float number = 0;
    DispatchNumber(mask.type,
                   [&]<typename T>() { number = static_cast<float>(k_.input<T>(3)[at]); });
    return number;
  }

  // Which keys a query sees, but for the mask: [begin, end).
  struct Seen {
    int64_t begin, end;
  };
  Seen SeenBy(int64_t b, int64_t row) const {
    const AttentionSizes& s = plan_.sizes;
    const Settings& settings = plan_.settings;
    const int64_t valid =
        plan_.has_lengths ? std::clamp<int64_t>(k_.input<int64_t>(6)[b], 0, s.total()) : s.total();
    const int64_t position = row + (plan_.has_lengths ? valid - s.queries : s.past);
    Seen seen{0, valid};
    if (settings.causal) seen.end = std::min(seen.end, position + 1);
    if (settings.left_window >= 0 && settings.left_window < position) {
      seen.begin = position - settings.left_window;
    }
    if (settings.right_window >= 0 && settings.right_window < seen.end - position) {
      seen.end = position + settings.right_window + 1;
    }
    seen.end = std::min(seen.end, valid);
    return seen.begin < seen.end ? seen : Seen{0, 0};
  }

  // Adds the mask; false when it leaves no key.
  bool AddMask(int64_t b, int64_t h, int64_t row, const Seen& seen, float* scores) {
    const math::Simd& simd = math::CurrentSimd();
    const int64_t count = seen.end - seen.begin;
    for (int64_t j = seen.begin; j < seen.end; ++j) bias_[j] = MaskAt(b, h, row, j);
    simd.binary(math::Binary::kAdd, scores + seen.begin, bias_ + seen.begin, scores + seen.begin,
                count, 1, 1);
    return std::any_of(bias_ + seen.begin, bias_ + seen.end,
                       [](float bias) { return bias != kMinusInfinity; });
  }

  void MaskAndNormalize(int64_t b, int64_t h, int64_t row, float* report) {
    const AttentionSizes& s = plan_.sizes;
    const math::Simd& simd = math::CurrentSimd();
    const int64_t total = s.total();
    float* scores = scores_ + row * total;
    const Seen seen = SeenBy(b, row);
    std::fill(scores, scores + seen.begin, kMinusInfinity);
    std::fill(scores + seen.end, scores + total, kMinusInfinity);
    const bool any =
        seen.begin < seen.end && (!plan_.mask.present || AddMask(b, h, row, seen, scores));
    if (report != nullptr && plan_.settings.scores_output == ScoresOutput::kMasked) {
      std::copy_n(scores, total, report + row * total);
    }
    if (!any) {
      std::fill_n(scores, total, 0.0f);
      return;
    }
    const float sum = simd.exp_sum(scores, scores, total, simd.max(scores, total), 1.0f);
    simd.affine(scores, scores, total, 1.0f / sum, 0.0f);
  }

  const Plan& plan_;
  const KernelContext& k_;
  float* scores_;  // [queries, total]
  float* bias_;    // [total]
  float* packed_keys_;
  float* packed_values_;
};

void RunHeads(const Plan& plan, const KernelContext& k, float* scratch, const float* keys,
              Layout key_layout, const float* values, Layout value_layout, int64_t begin,
              int64_t end) {
  const AttentionSizes& s = plan.sizes;
  HeadRun run(plan, k, scratch);
  const Layout q_layout = LayoutOf(s.split_heads, s.query_heads, s.queries, s.head);
  const Layout y_layout = LayoutOf(s.split_heads, s.query_heads, s.queries, s.value_head);
  const int64_t share = s.query_heads / s.key_heads;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t b = i / s.query_heads, h = i % s.query_heads;
    float* out = k.output<float>(0) + b * y_layout.batch + h * y_layout.head;
    run.Run(b, h, {q_layout.At(k.input<float>(0), b, h), q_layout.row},
            {key_layout.At(keys, b, h / share), key_layout.row},
            {value_layout.At(values, b, h / share), value_layout.row}, out, y_layout.row);
  }
}

Status Compute(const Plan& plan, const KernelContext& k) {
  const AttentionSizes& s = plan.sizes;
  const float* keys = k.input<float>(1);
  const float* values = k.input<float>(2);
  Layout key_layout = LayoutOf(s.split_heads, s.key_heads, s.keys, s.head);
  Layout value_layout = LayoutOf(s.split_heads, s.key_heads, s.keys, s.value_head);
  float* scratch = k.scratch<float>();
  if (plan.wants_key || s.past > 0) {
    float* present = plan.wants_key ? k.output<float>(1) : scratch;
    Concatenate(s, k.pool(), k.input<float>(4), keys, s.head, present);
    keys = present;
    key_layout = LayoutOf(true, s.key_heads, s.total(), s.head);
  }
  scratch += plan.present_key_floats;
  if (plan.wants_value || s.past > 0) {
    float* present = plan.wants_value ? k.output<float>(2) : scratch;
    Concatenate(s, k.pool(), k.input<float>(5), values, s.value_head, present);
    values = present;
    value_layout = LayoutOf(true, s.key_heads, s.total(), s.value_head);
  }
  scratch += plan.present_value_floats;
  const int64_t heads = s.batch * s.query_heads;
  k.pool().ParallelFor(plan.chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      RunHeads(plan, k, scratch + chunk * plan.chunk_floats, keys, key_layout, values, value_layout,
               heads * chunk / plan.chunks, heads * (chunk + 1) / plan.chunks);
    }
  });
  return Status::Ok();
}

Result<Mask> MaskOf(const PrepareContext& context, const AttentionSizes& s) {
  Mask mask;
  if (!context.HasInput(3)) return mask;
  mask.present = true;
  mask.type = context.inputs[3].type;
  ONNXD_ASSIGN_OR_RETURN(mask.view, AttentionMaskOf(context.node, context.InputShape(3), s));
  return mask;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeAttention(const KernelInfo& info) {
  for (const size_t i : {0, 1, 2, 4, 5}) {
    const bool present = i < info.input_types.size() && info.input_types[i].known();
    if (present && info.InputType(i) != DataType::kFloat) {
      return DeclineType("Attention", info.InputType(i));
    }
  }
  const Attributes& attributes = info.node.attributes;
  const auto mode = attributes.Int("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) return Unimplemented("qk_matmul_output_mode beyond 3");
  Settings settings{attributes.Float("scale", 0),
                    attributes.Float("softcap", 0),
                    attributes.Int("is_causal", 0) != 0,
                    attributes.Int("left_window_size", -1),
                    attributes.Int("right_window_size", -1),
                    static_cast<ScoresOutput>(mode)};
  const bool own_scale = attributes.Has("scale");
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    Plan plan{};
    const bool has_past = context.HasInput(4);
    ONNXD_ASSIGN_OR_RETURN(
        plan.sizes,
        AttentionSizesOf(context.node, context.InputShape(0), context.InputShape(1),
                         context.InputShape(2), has_past ? &context.InputShape(4) : nullptr,
                         context.HasInput(5) ? &context.InputShape(5) : nullptr));
    const AttentionSizes& s = plan.sizes;
    plan.settings = settings;
    if (!own_scale) plan.settings.scale = 1.0f / std::sqrt(static_cast<float>(s.head));
    ONNXD_ASSIGN_OR_RETURN(plan.mask, MaskOf(context, s));
    plan.has_lengths = context.HasInput(6);
    if (plan.has_lengths && context.InputShape(6).ElementCount() != s.batch) {
      return InvalidArgument(StrCat(Describe(context.node), ": nonpad_kv_seqlen has shape ",
                                    context.InputShape(6).ToString()));
    }
    plan.wants_key = context.HasOutput(1);
    plan.wants_value = context.HasOutput(2);
    plan.wants_scores = context.HasOutput(3);
    const auto aligned = [](int64_t floats) { return (floats + 15) / 16 * 16; };
    const math::Simd& simd = math::CurrentSimd();
    plan.packed_keys = aligned(math::PackedBSize(simd, s.head, s.total()));
    plan.packed_values = aligned(math::PackedBSize(simd, s.total(), s.value_head));
    plan.chunk_floats =
        aligned(s.queries * s.total() + s.total()) + plan.packed_keys + plan.packed_values;
    plan.chunks = std::max<int64_t>(1, std::min<int64_t>(context.threads, s.batch * s.query_heads));
    const bool key_copy = s.past > 0 && !plan.wants_key;
    const bool value_copy = s.past > 0 && !plan.wants_value;
    plan.present_key_floats = key_copy ? aligned(s.batch * s.key_heads * s.total() * s.head) : 0;
    plan.present_value_floats =
        value_copy ? aligned(s.batch * s.key_heads * s.total() * s.value_head) : 0;
    PreparedKernel prepared;
    prepared.scratch_bytes =
        static_cast<size_t>(plan.present_key_floats + plan.present_value_floats +
                            plan.chunks * plan.chunk_floats) *
        sizeof(float);
    prepared.compute = [plan](const KernelContext& k) { return Compute(plan, k); };
    return prepared;
  });
}

}  // namespace onnxd
