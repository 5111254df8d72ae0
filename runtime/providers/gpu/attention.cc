// Attention-23 to -25 (ai.onnx) and onnxd::FusedAttention.
#include "runtime/ops/attention.h"

#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/ops/fused_attention.h"
#include "runtime/providers/gpu/flash_attention.h"
#include "runtime/providers/gpu/pointwise.h"
#include "runtime/providers/gpu/strided_copy.h"

namespace onnxd {
namespace {

constexpr std::string_view kFunctions = R"(
FUNCTION i64 least_of(i64 a, i64 b) { return a < b ? a : b; }
FUNCTION i64 most_of(i64 a, i64 b) { return a > b ? a : b; }
)";

bool IsAttentionType(DataType type) { return IsDeviceType(type) && IsFloatingPoint(type); }

struct Settings {
  DataType type;
  DataType mask = DataType::kUndefined;
  bool has_mask, has_lengths, causal;
  int64_t left_window, right_window;  // -1: unbounded
  float softcap;
};

// batch = [batch, key heads, query heads of a key head].
AttentionText TextOf(const Settings& settings, int64_t share) {
  AttentionText text;
  text.type = settings.type;
  text.zeros = "total == 0.0f";
  text.functions = kFunctions;
  text.parameters = "i64 past, ";
  text.setup = "const i64 valid = keys, offset = past;";
  if (settings.has_lengths) {
    text.parameters += "GLOBAL const i64* lengths, ";
    text.setup =
        "const i64 valid = lengths[head[0]] < 0 ? 0 : least_of(lengths[head[0]], keys), "
        "offset = valid - queries;";
  }
  std::string hidden = "key >= valid";
  text.end_key = "valid";
  if (settings.causal) {
    hidden += " || key > query + offset";
    text.end_key = "least_of(valid, down + QUERIES + offset)";
  }
  if (settings.left_window >= 0) {
    hidden += StrCat(" || query + offset - key > ", settings.left_window);
    text.first_key = StrCat("most_of(0, down + offset - ", settings.left_window, ")");
  }
  if (settings.right_window >= 0) {
    hidden += StrCat(" || key - query - offset > ", settings.right_window);
  }
  std::string score = "s";
  if (settings.softcap > 0) {
    text.parameters += "f32 softcap, ";
    score = "softcap * tanh(s / softcap)";
  }
  if (settings.has_mask) {
    text.functions += DefineType("M", settings.mask);
    text.parameters += "GLOBAL const M* mask, Dims mask_strides, i64 mask_keys, ";
    text.setup += StrCat("const i64 mask_at = head[0] * mask_strides.at[0] + (head[1] * ", share,
                         " + head[2]) * mask_strides.at[1];");
    const std::string at =
        "M_GET(mask, mask_at + query * mask_strides.at[2] + key * mask_strides.at[3])";
    hidden += " || key >= mask_keys";
    score = settings.mask == DataType::kBool ? StrCat("(", at, " ? ", score, " : -INFINITY_F32)")
                                             : StrCat(score, " + (f32)", at);
  }
  text.score = StrCat(hidden, " ? -INFINITY_F32 : ", score);
  return text;
}

// Rows of heads that split the last axis, or that stand on an axis of their own.
AttentionOperand OperandOf(bool split_heads, int64_t heads, int64_t share, int64_t rows,
                           int64_t width) {
  const int64_t head = split_heads ? rows * width : width;
  return {{heads * rows * width, share * head, head}, split_heads ? width : heads * width};
}

// Past rows, then new ones: [batch, heads, past + rows, width].
void AddPresent(const AttentionSizes& s, int64_t width, size_t input,
                std::vector<CopyPiece>& pieces) {
  const std::vector<int64_t> out = {s.key_heads * s.total() * width, s.total() * width, width, 1};
  CopyPiece fresh;
  fresh.input = input + 1;
  fresh.output = input / 2;
  fresh.dims = {s.batch, s.key_heads, s.keys, width};
  const AttentionOperand from = OperandOf(s.split_heads, s.key_heads, 1, s.keys, width);
  fresh.in_strides = {from.batch_strides[0], from.batch_strides[1], from.row_stride, 1};
  fresh.out_strides = out;
  fresh.out_offset = s.past * width;
  pieces.push_back(fresh);
  if (s.past == 0) return;
  CopyPiece past = fresh;
  past.input = input;
  past.dims[2] = s.past;
  past.in_strides = {s.key_heads * s.past * width, s.past * width, width, 1};
  past.out_offset = 0;
  pieces.push_back(past);
}

// Bytes of scratch for what no output holds.
size_t PresentBytes(const PrepareContext& context, const AttentionSizes& s, size_t output,
                    int64_t width, DataType type) {
  if (s.past == 0 || context.HasOutput(output)) return 0;
  const int64_t bytes =
      s.batch * s.key_heads * s.total() * width * static_cast<int64_t>(DataTypeBits(type) / 8);
  return static_cast<size_t>((bytes + 255) / 256 * 256);
}

struct AttentionPlan {
  AttentionSizes sizes;
  std::function<Status(const KernelContext&)> gather;  // null: keys and values are read in place
  bool gathers_keys = false, gathers_values = false;
  size_t key_bytes = 0, present_bytes = 0;  // of scratch
  DeviceDims mask_strides;
  int64_t mask_keys = 0;
};

Status Run(const AttentionPlan& plan, const FlashAttention& attention, const Settings& settings,
           const KernelContext& k) {
  const void* keys = k.input<void>(1);
  const void* values = k.input<void>(2);
  if (plan.gather != nullptr) {
    auto* scratch = k.scratch<std::byte>();
    void* present[2] = {k.output<void>(1), k.output<void>(2)};
    if (present[0] == nullptr) present[0] = scratch;
    if (present[1] == nullptr) present[1] = scratch + plan.key_bytes;
    void* from[4];
    const size_t order[] = {4, 1, 5, 2};
    for (size_t i = 0; i < 4; ++i) from[i] = const_cast<void*>(k.input<void>(order[i]));
    ONNXD_RETURN_IF_ERROR(plan.gather(
        KernelContext(from, present, nullptr, nullptr, &k.pool(), &k.stream(), k.step())));
    if (plan.gathers_keys) keys = present[0];
    if (plan.gathers_values) values = present[1];
  }
  const AttentionPointers pointers{k.input<void>(0), keys, values, k.output<void>(0),
                                   k.scratch<std::byte>() + plan.present_bytes};
  return attention.run(k, pointers, [&](LaunchArguments& arguments) {
    arguments.Value(plan.sizes.past);
    if (settings.has_lengths) arguments.Pointer(k.input<void>(6));
    if (settings.softcap > 0) arguments.Value(settings.softcap);
    if (!settings.has_mask) return;
    arguments.Pointer(k.input<void>(3)).Value(plan.mask_strides);
    arguments.Value(plan.mask_keys);
  });
}

Status PlanGathering(const PrepareContext& context, GpuDevice& device, DataType type,
                     AttentionPlan& plan, FlashSizes& flash) {
  const AttentionSizes& s = plan.sizes;
  std::vector<CopyPiece> pieces;
  plan.gathers_keys = s.past > 0 || context.HasOutput(1);
  plan.gathers_values = s.past > 0 || context.HasOutput(2);
  if (plan.gathers_keys) {
    AddPresent(s, s.head, 0, pieces);
    flash.k = OperandOf(true, s.key_heads, 1, s.total(), s.head);
    flash.k.batch_strides.back() = 0;
  }
  if (plan.gathers_values) {
    AddPresent(s, s.value_head, 2, pieces);
    flash.v = OperandOf(true, s.key_heads, 1, s.total(), s.value_head);
    flash.v.batch_strides.back() = 0;
  }
  if (pieces.empty()) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(const PreparedKernel copies, PrepareCopies(device, MovedAs(type), pieces));
  plan.gather = copies.compute;
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuAttention(const KernelInfo& info, GpuDevice& device) {
  Settings settings{};
  settings.type = info.InputType(0);
  for (const size_t i : {0, 1, 2, 4, 5}) {
    const bool present = i < info.input_types.size() && info.input_types[i].known();
    const bool fits = info.InputType(i) == settings.type && IsAttentionType(settings.type);
    if (present && !fits) return DeclineOnDevice(info, info.InputType(i));
  }
  if (info.node.output(3) != kNoValue) return Unimplemented("the scores as an output");
  const Attributes& attributes = info.node.attributes;
  settings.has_mask = info.node.input(3) != kNoValue;
  settings.mask = info.InputType(3);
  if (settings.has_mask && !IsDeviceType(settings.mask)) {
    return DeclineOnDevice(info, settings.mask);
  }
  settings.has_lengths = info.node.input(6) != kNoValue;
  settings.causal = attributes.Int("is_causal", 0) != 0;
  settings.left_window = attributes.Int("left_window_size", -1);
  settings.right_window = attributes.Int("right_window_size", -1);
  settings.softcap = attributes.Float("softcap", 0);
  const bool own_scale = attributes.Has("scale");
  const float scale = attributes.Float("scale", 0);
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    AttentionPlan plan;
    const auto given = [&](size_t i) {
      return context.HasInput(i) ? &context.InputShape(i) : nullptr;
    };
    ONNXD_ASSIGN_OR_RETURN(plan.sizes, AttentionSizesOf(context.node, *given(0), *given(1),
                                                        *given(2), given(4), given(5)));
    const AttentionSizes& s = plan.sizes;
    if (settings.has_lengths && given(6)->ElementCount() != s.batch) {
      return InvalidArgument(
          StrCat(Describe(context.node), ": nonpad_kv_seqlen has shape ", given(6)->ToString()));
    }
    if (settings.has_mask) {
      ONNXD_ASSIGN_OR_RETURN(const AttentionMask mask, AttentionMaskOf(context.node, *given(3), s));
      std::copy(mask.strides.begin(), mask.strides.end(), plan.mask_strides.values.begin());
      plan.mask_keys = mask.keys;
    }
    if (context.OutputShape(0).ElementCount() == 0) return NothingToDo();
    const int64_t share = s.query_heads / s.key_heads;
    FlashSizes flash;
    flash.batch = {s.batch, s.key_heads, share};
    flash.queries = s.queries;
    flash.keys = s.total();
    flash.head = s.head;
    flash.value_head = s.value_head;
    flash.scale = own_scale ? scale : 1.0f / std::sqrt(static_cast<float>(s.head));
    flash.q = OperandOf(s.split_heads, s.query_heads, share, s.queries, s.head);
    flash.y = OperandOf(s.split_heads, s.query_heads, share, s.queries, s.value_head);
    flash.k = OperandOf(s.split_heads, s.key_heads, 1, s.keys, s.head);
    flash.v = OperandOf(s.split_heads, s.key_heads, 1, s.keys, s.value_head);
    flash.k.batch_strides.back() = flash.v.batch_strides.back() = 0;
    ONNXD_RETURN_IF_ERROR(PlanGathering(context, device, settings.type, plan, flash));
    plan.key_bytes = PresentBytes(context, s, 1, s.head, settings.type);
    plan.present_bytes = plan.key_bytes + PresentBytes(context, s, 2, s.value_head, settings.type);
    const auto make = [&](const FlashAttention& attention) {
      PreparedKernel prepared;
      prepared.scratch_bytes = plan.present_bytes + attention.scratch_bytes;
      prepared.compute = [plan, attention, settings](const KernelContext& k) {
        return Run(plan, attention, settings, k);
      };
      return prepared;
    };
    return PrepareFlashAttention(device, context, TextOf(settings, share), flash, make);
  });
}

namespace {

// Strides of 0 and 1, which most are, cost nothing where the compiler knows them. `from_last`:
// which of the strides of that mask it is.
std::string StrideText(int64_t stride, std::string_view mask, int64_t from_last) {
  if (stride == 0 || stride == 1) return StrCat(stride);
  return StrCat(mask, "_strides.at[MAX_RANK - ", from_last, "]");
}

// Whether pairs of the mask's columns are words.
bool IsInPairs(const FusedAttentionPlan& plan) {
  const auto is_even = [](int64_t number) { return number % 2 == 0; };
  const auto& batch_strides = plan.batch_strides[FusedAttentionPlan::kMask];
  return plan.masks[0].column_stride == 1 && is_even(plan.masks[0].row_stride) &&
         is_even(plan.keys) && std::all_of(batch_strides.begin(), batch_strides.end(), is_even);
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuFusedAttention(const KernelInfo& info, GpuDevice& device) {
  using Plan = FusedAttentionPlan;
  AttentionText text;
  text.type = info.InputType(0);
  if (!IsAttentionType(text.type)) return DeclineOnDevice(info, text.type);
  static constexpr std::string_view kMasks[] = {"mask", "window_mask"};
  for (size_t i = 0; i < 2; ++i) {
    if (info.node.input(3 + i) == kNoValue) continue;
    if (info.InputType(3 + i) != text.type) return DeclineOnDevice(info, info.InputType(3 + i));
    const std::string mask(kMasks[i]);
    text.parameters += StrCat("GLOBAL const X* ", mask, ", Dims ", mask, "_strides, ");
    text.setup +=
        StrCat("i64 ", mask, "_at = 0; UNROLL for (i32 axis = 0; axis < BATCH_RANK; ++axis) ", mask,
               "_at += head[axis] * ", mask, "_strides.at[axis];");
  }
  if (info.node.attributes.Int("nan_to_zero", 0) != 0) {
    text.zeros = "total == 0.0f || total != total";
  }
  const auto prepare = [=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.OutputShape(0).ElementCount() == 0) return NothingToDo();
    std::vector<AttentionInput> inputs;
    for (size_t i = 0; i < context.inputs.size(); ++i) {
      inputs.push_back(
          {context.HasInput(i) ? &context.InputShape(i) : nullptr, context.inputs[i].strides});
    }
    ONNXD_ASSIGN_OR_RETURN(const Plan plan,
                           PlanFusedAttention(context.node, inputs, context.OutputShape(0)));
    FlashSizes flash;
    flash.batch = plan.batch;
    flash.queries = plan.queries;
    flash.keys = plan.keys;
    flash.head = plan.width;
    flash.value_head = plan.value_width;
    flash.scale = plan.scale;
    flash.q = {plan.batch_strides[Plan::kQuery], plan.query_stride};
    flash.k = {plan.batch_strides[Plan::kKey], plan.key_stride};
    flash.v = {plan.batch_strides[Plan::kValue], plan.value_stride};
    flash.y = {plan.batch_strides[Plan::kOut], plan.out_stride};
    if (plan.batch.size() + 2 > kMostDeviceDims) return Unimplemented("attention of so many axes");
    std::array<DeviceDims, 2> masks;
    for (size_t i = 0; i < 2; ++i) {
      ONNXD_ASSIGN_OR_RETURN(masks[i], ToDeviceDims(plan.batch_strides[Plan::kMask + i]));
      masks[i].values[kMostDeviceDims - 2] = plan.masks[i].row_stride;
      masks[i].values[kMostDeviceDims - 1] = plan.masks[i].column_stride;
    }
    AttentionText whole = text;
    for (size_t i = 0; i < 2; ++i) {
      if (!plan.masks[i].given) continue;
      const auto name = [&](std::string_view stride) { return StrCat(kMasks[i], stride); };
      const std::string row = StrCat(name("_at"), " + query * ", name("_row"));
      if (i == 0 && IsInPairs(plan)) {
        whole.bias_row = StrCat(kMasks[i], " + ", row);
      } else {
        whole.score += StrCat(" + X_GET(", kMasks[i], ", ", row, " + key * ", name("_column"), ")");
      }
      whole.functions +=
          Define(name("_row"), StrideText(plan.masks[i].row_stride, kMasks[i], 2)) +
          Define(name("_column"), StrideText(plan.masks[i].column_stride, kMasks[i], 1));
    }
    const auto make = [&](const FlashAttention& attention) {
      PreparedKernel prepared;
      prepared.scratch_bytes = attention.scratch_bytes;
      prepared.compute = [attention, masks, given = plan.masks](const KernelContext& k) {
        const AttentionPointers pointers{k.input<void>(0), k.input<void>(1), k.input<void>(2),
                                         k.output<void>(0), k.scratch<void>()};
        return attention.run(k, pointers, [&](LaunchArguments& arguments) {
          for (size_t i = 0; i < 2; ++i) {
            if (given[i].given) arguments.Pointer(k.input<void>(3 + i)).Value(masks[i]);
          }
        });
      };
      return prepared;
    };
    return PrepareFlashAttention(device, context, whole, flash, make);
  };
  return MakeGpuKernel(prepare, {}, {0, 1, 2});
}

}  // namespace onnxd
