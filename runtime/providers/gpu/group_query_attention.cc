// com.microsoft GroupQueryAttention: new rows go into the cache behind the valid ones of each batch
// entry, rotated by their position, then queries attend to it. Source of the semantics:
// onnxruntime's ContribOperators document.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/providers/gpu/flash_attention.h"

namespace onnxd {
namespace {

constexpr std::string_view kFunctions = R"(
FUNCTION i64 least_of(i64 a, i64 b) { return a < b ? a : b; }
FUNCTION i64 most_of(i64 a, i64 b) { return a > b ? a : b; }

// How many rows of the cache are valid before the new ones; `length`: the last valid position.
FUNCTION i64 past_of(i64 length, i64 sequence, i64 room, i32 is_first) {
  return is_first != 0 ? 0 : least_of(most_of(length + 1 - sequence, 0), room - sequence);
}
)";

constexpr std::string_view kSource = R"(
// Element d of a row at `from`, turned by the angles of a position.
FUNCTION f32 turned(GLOBAL const X* from, i64 d, i64 rotated, GLOBAL const X* cosines,
                    GLOBAL const X* sines, i64 position) {
  const f32 own = X_GET(from, d);
  if (d >= rotated) return own;
  const i64 half_size = rotated / 2;
#if INTERLEAVED
  const i64 pair = d / 2;
  const bool is_first = d % 2 == 0;
  const f32 other = X_GET(from, is_first ? d + 1 : d - 1);
#else
  const i64 pair = d % half_size;
  const bool is_first = d < half_size;
  const f32 other = X_GET(from, is_first ? d + half_size : d - half_size);
#endif
  const f32 c = X_GET(cosines, position * half_size + pair);
  const f32 s = X_GET(sines, position * half_size + pair);
  return is_first ? c * own - s * other : s * other + c * own;
}

FUNCTION i64 position_of(GLOBAL const i64* positions, i64 batch, i64 row, i64 sequence, i64 past,
                         i64 most, GLOBAL u32* failure, u32 step) {
#if HAS_POSITIONS
  const i64 position = positions[batch * sequence + row];
#else
  const i64 position = past + row;
#endif
  if (position < 0 || position >= most) {
    RAISE(failure, step, 2u, position);
    return 0;
  }
  return position;
}

#define ROTARY GLOBAL const X *cosines, GLOBAL const X *sines, GLOBAL const i64 *positions, \
      i64 rotated, i64 most_positions

// fresh [batch, sequence, lanes, size], past [batch, heads, held, size] -> present [batch, heads,
// total, size].
KERNEL write_cache(GLOBAL const X* fresh, GLOBAL const X* past_rows, GLOBAL X* present,
                   GLOBAL const M* lengths, ROTARY, i64 count, i64 heads, i64 sequence, i64 held,
                   i64 total, i64 size, i64 lanes, i64 first_lane, i32 is_first, i32 turns,
                   GLOBAL u32* failure, u32 step) {
  const i64 index = GLOBAL_INDEX;
  if (index >= count) return;
  const i64 d = index % size, t = index / size % total, head = index / size / total % heads;
  const i64 batch = index / size / total / heads;
  const i64 length = (i64)lengths[batch];
  const i64 past = past_of(length, sequence, total, is_first);
  if (is_first == 0 && (length + 1 - sequence < 0 || length + 1 > total)) {
    RAISE(failure, step, 1u, length);
  }
  f32 value = 0.0f;
  if (t >= past && t < past + sequence) {
    const i64 row = t - past;
    GLOBAL const X* from = fresh + ((batch * sequence + row) * lanes + first_lane + head) * size;
    if (turns != 0) {
      const i64 position =
          position_of(positions, batch, row, sequence, past, most_positions, failure, step);
      value = turned(from, d, rotated, cosines, sines, position);
    } else {
      value = X_GET(from, d);
    }
  } else if (t < held) {
    value = X_GET(past_rows, ((batch * heads + head) * held + t) * size + d);
  }
  X_PUT(present, index, value);
}

// The same of queries: [batch, sequence, lanes, size] -> [batch, heads, sequence, size].
KERNEL turn_queries(GLOBAL const X* fresh, GLOBAL X* out, GLOBAL const M* lengths, ROTARY,
                    i64 count, i64 heads, i64 sequence, i64 total, i64 size, i64 lanes,
                    i32 is_first, GLOBAL u32* failure, u32 step) {
  const i64 index = GLOBAL_INDEX;
  if (index >= count) return;
  const i64 d = index % size, row = index / size % sequence;
  const i64 head = index / size / sequence % heads, batch = index / size / sequence / heads;
  const i64 past = past_of((i64)lengths[batch], sequence, total, is_first);
  const i64 position =
      position_of(positions, batch, row, sequence, past, most_positions, failure, step);
  GLOBAL const X* from = fresh + ((batch * sequence + row) * lanes + head) * size;
  X_PUT(out, index, turned(from, d, rotated, cosines, sines, position));
}
)";

struct Settings {
  DataType type, lengths;
  bool packed, rotates, has_positions, has_bias, has_sink, smooth, causal;
  int64_t heads, key_heads, window;
  float scale, softcap;
};

struct Sizes {
  int64_t batch, sequence, size, held, total, lanes;
  int64_t rotated = 0, most_positions = 0;
  bool is_first;
};

std::string SourceOf(const Settings& settings, bool interleaved) {
  return StrCat(DefineType("X", settings.type), DefineType("M", settings.lengths),
                Define("INTERLEAVED", interleaved ? 1 : 0),
                Define("HAS_POSITIONS", settings.has_positions ? 1 : 0), kFunctions, kSource);
}

AttentionText TextOf(const Settings& settings) {
  AttentionText text;
  text.type = settings.type;
  text.zeros = "total == 0.0f";
  text.functions = StrCat(kFunctions, DefineType("M", settings.lengths));
  text.parameters = "GLOBAL const M* lengths, i32 is_first, ";
  text.setup =
      "const i64 past = past_of((i64)lengths[head[0]], queries, keys, is_first); "
      "const i64 valid = past + queries;";
  std::string hidden = "key >= valid";
  text.end_key = "valid";
  if (settings.causal) {
    hidden += " || key > past + query";
    text.end_key = "least_of(valid, past + down + QUERIES)";
  }
  if (settings.window > 0) {
    hidden += StrCat(" || past + query - key >= ", settings.window);
    text.first_key = StrCat("most_of(0, past + down - ", settings.window, " + 1)");
  }
  std::string score = "s";
  if (settings.softcap > 0) {
    text.parameters += "f32 softcap, ";
    score = "softcap * tanh(s / softcap)";
  }
  const std::string head =
      StrCat("(head[1] * ", settings.heads / settings.key_heads, " + head[2])");
  if (settings.has_bias) {
    text.parameters += "GLOBAL const X* bias, i64 bias_batch, i64 bias_head, i64 bias_row, ";
    text.setup += StrCat(" const i64 bias_at = head[0] * bias_batch + ", head, " * bias_head;");
    score += " + X_GET(bias, bias_at + query * bias_row + key)";
  }
  if (settings.has_sink) {
    text.parameters += "GLOBAL const X* sinks, ";
    text.extra = StrCat("X_GET(sinks, ", head, ")");
  } else if (settings.smooth) {
    text.extra = "0.0f";
  }
  text.score = StrCat(hidden, " ? -INFINITY_F32 : ", score);
  return text;
}

Result<Sizes> SizesOf(const PrepareContext& context, const Settings& settings) {
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat(Describe(context.node), ": ", why));
  };
  Sizes s{};
  const Shape& q = context.InputShape(0);
  s.lanes = settings.packed ? settings.heads + 2 * settings.key_heads : settings.heads;
  if (q.rank() != 3 || q[2] % s.lanes != 0) return fail("query");
  s.batch = q[0];
  s.sequence = q[1];
  s.size = q[2] / s.lanes;
  for (const size_t i : {1, 2}) {
    const Shape wanted{s.batch, s.sequence, settings.key_heads * s.size};
    if (!settings.packed && !(context.InputShape(i) == wanted)) {
      return fail(StrCat("operand ", i, " does not fit the query"));
    }
  }
  for (const size_t i : {3, 4}) {
    if (!context.HasInput(i)) continue;
    const Shape& past = context.InputShape(i);
    if (past.rank() != 4 || past[0] != s.batch || past[1] != settings.key_heads ||
        past[3] != s.size) {
      return fail(StrCat("past of shape ", past.ToString()));
    }
    s.held = past[2];
  }
  const Tensor* total = context.inputs[6].value;
  if (total == nullptr) return NeedsValues();
  const auto numbers = IntElements(*total);
  if (!numbers || numbers->size() != 1 || context.InputShape(5).ElementCount() != s.batch) {
    return fail("seqlens_k or total_sequence_length do not fit");
  }
  s.is_first = s.sequence == (*numbers)[0];
  s.total = std::max((*numbers)[0], s.held);
  if (s.total < s.sequence) return fail(StrCat("total_sequence_length ", (*numbers)[0]));
  if (!settings.rotates) return s;
  const Shape& cosines = context.InputShape(7);
  if (cosines.rank() != 2 || !(cosines == context.InputShape(8)) || 2 * cosines[1] > s.size) {
    return fail("do_rotary needs cos_cache and sin_cache");
  }
  s.rotated = 2 * cosines[1];
  s.most_positions = cosines[0];
  if (settings.has_positions && context.InputShape(9).ElementCount() != s.batch * s.sequence) {
    return fail("position_ids do not fit");
  }
  return s;
}

struct Programs {
  GpuProgram write_cache, turn_queries;
};

void AddRotary(const KernelContext& k, const Sizes& s, LaunchArguments& arguments) {
  arguments.Pointer(k.input<void>(7)).Pointer(k.input<void>(8)).Pointer(k.input<void>(9));
  arguments.Value(s.rotated).Value(s.most_positions);
}

void AddFailure(const KernelContext& k, LaunchArguments& arguments) {
  arguments.Pointer(k.stream().failure_word()).Value(k.step());
}

Status WriteCache(const KernelContext& k, const Programs& programs, const Settings& settings,
                  const Sizes& s, bool keys) {
  const int64_t count = s.batch * settings.key_heads * s.total * s.size;
  const size_t input = settings.packed ? 0 : keys ? 1 : 2;
  const int64_t first_lane =
      !settings.packed ? 0 : settings.heads + (keys ? 0 : settings.key_heads);
  const int64_t lanes = settings.packed ? s.lanes : settings.key_heads;
  LaunchArguments arguments;
  arguments.Pointer(k.input<void>(input)).Pointer(k.input<void>(keys ? 3 : 4));
  arguments.Pointer(k.output<void>(keys ? 1 : 2)).Pointer(k.input<void>(5));
  AddRotary(k, s, arguments);
  arguments.Value(count).Value(settings.key_heads).Value(s.sequence).Value(s.held).Value(s.total);
  arguments.Value(s.size).Value(lanes).Value(first_lane).Value(int32_t{s.is_first ? 1 : 0});
  arguments.Value(int32_t{keys && settings.rotates ? 1 : 0});
  AddFailure(k, arguments);
  return Launch(k, programs.write_cache, LaunchGrid::Over(count), arguments);
}

Status TurnQueries(const KernelContext& k, const Programs& programs, const Settings& settings,
                   const Sizes& s) {
  const int64_t count = s.batch * settings.heads * s.sequence * s.size;
  LaunchArguments arguments;
  arguments.Pointer(k.input<void>(0)).Pointer(k.scratch<void>()).Pointer(k.input<void>(5));
  AddRotary(k, s, arguments);
  arguments.Value(count).Value(settings.heads).Value(s.sequence).Value(s.total).Value(s.size);
  arguments.Value(s.lanes).Value(int32_t{s.is_first ? 1 : 0});
  AddFailure(k, arguments);
  return Launch(k, programs.turn_queries, LaunchGrid::Over(count), arguments);
}

// Strides of input 10 by batch, head and row.
Result<std::array<int64_t, 3>> BiasStrides(const PrepareContext& context, const Settings& settings,
                                           const Sizes& s) {
  std::array<int64_t, 3> strides{};
  if (!settings.has_bias) return strides;
  const Shape& bias = context.InputShape(10);
  const bool fits = bias.rank() == 4 && (bias[0] == 1 || bias[0] == s.batch) &&
                    (bias[1] == 1 || bias[1] == settings.heads) && bias[2] == s.sequence &&
                    bias[3] >= (s.held == s.total ? 0 : s.total);
  if (!fits) {
    return InvalidArgument(
        StrCat(Describe(context.node), ": attention_bias of shape ", bias.ToString()));
  }
  strides = {bias[0] == 1 ? 0 : bias[1] * bias[2] * bias[3], bias[1] == 1 ? 0 : bias[2] * bias[3],
             bias[3]};
  return strides;
}

Result<Settings> SettingsOf(const KernelInfo& info) {
  const Node& node = info.node;
  const Attributes& a = node.attributes;
  const auto has = [&](size_t i) { return node.input(i) != kNoValue; };
  Settings s{};
  s.type = info.InputType(0);
  s.lengths = info.InputType(5);
  if (!IsDeviceType(s.type) || !IsFloatingPoint(s.type) || s.type == DataType::kDouble) {
    return DeclineOnDevice(info, s.type);
  }
  if (node.output(3) != kNoValue || node.output(1) == kNoValue || node.output(2) == kNoValue) {
    return Unimplemented("the scores as an output, or no cache");
  }
  for (size_t i = 12; i < 16; ++i) {
    if (has(i)) return Unimplemented("quantized caches and norms of heads");
  }
  if (a.Int("sliding_window_cache", 0) != 0) return Unimplemented("a sliding cache");
  s.packed = !has(1);
  s.rotates = a.Int("do_rotary", 0) != 0;
  if (s.rotates && (!has(7) || !has(8))) return Unimplemented("do_rotary without caches");
  s.has_positions = s.rotates && has(9);
  s.has_bias = has(10);
  s.has_sink = has(11);
  s.smooth = a.Int("smooth_softmax", 0) > 0;
  s.causal = a.Int("causal", 1) != 0;
  s.heads = a.Int("num_heads", 0);
  s.key_heads = a.Int("kv_num_heads", 0);
  s.window = a.Int("local_window_size", -1);
  s.scale = a.Float("scale", 0);
  s.softcap = a.Float("softcap", 0);
  if (s.heads < 1 || s.key_heads < 1 || s.heads % s.key_heads != 0) {
    return Unimplemented("num_heads and kv_num_heads");
  }
  return s;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuGroupQueryAttention(const KernelInfo& info,
                                                           GpuDevice& device) {
  ONNXD_ASSIGN_OR_RETURN(const Settings settings, SettingsOf(info));
  const std::string source =
      SourceOf(settings, info.node.attributes.Int("rotary_interleaved", 0) != 0);
  const auto prepare = [=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[1].shape == nullptr) return NeedsValues();
    ONNXD_ASSIGN_OR_RETURN(const Sizes s, SizesOf(context, settings));
    ONNXD_ASSIGN_OR_RETURN(const auto bias, BiasStrides(context, settings, s));
    Programs programs;
    ONNXD_ASSIGN_OR_RETURN(programs.write_cache, device.FindKernel(source, "write_cache"));
    ONNXD_ASSIGN_OR_RETURN(programs.turn_queries, device.FindKernel(source, "turn_queries"));
    const int64_t share = settings.heads / settings.key_heads;
    FlashSizes flash;
    flash.batch = {s.batch, settings.key_heads, share};
    flash.queries = s.sequence;
    flash.keys = s.total;
    flash.head = flash.value_head = s.size;
    flash.scale =
        settings.scale != 0 ? settings.scale : 1.0f / std::sqrt(static_cast<float>(s.size));
    const int64_t rows = s.sequence * s.size, cache = s.total * s.size;
    if (settings.rotates) {
      flash.q = {{settings.heads * rows, share * rows, rows}, s.size};
    } else {
      flash.q = {{s.sequence * s.lanes * s.size, share * s.size, s.size}, s.lanes * s.size};
    }
    flash.k = {{settings.key_heads * cache, cache, 0}, s.size};
    flash.v = flash.k;
    flash.y = {{settings.heads * rows, share * s.size, s.size}, settings.heads * s.size};
    ONNXD_ASSIGN_OR_RETURN(const FlashAttention attention,
                           MakeFlashAttention(device, TextOf(settings), flash));
    PreparedKernel prepared;
    const auto element = static_cast<int64_t>(DataTypeBits(settings.type) / 8);
    size_t turned_bytes = 0;
    if (settings.rotates) {
      const int64_t bytes = s.batch * settings.heads * rows * element;
      turned_bytes = static_cast<size_t>((bytes + 255) / 256 * 256);
    }
    prepared.scratch_bytes = turned_bytes + attention.scratch_bytes;
    // Rows stay where they are.
    if (s.held == s.total) prepared.in_place = {{1, 3}, {2, 4}};
    prepared.on_failure = [name = Describe(context.node)](const DeviceFailure& failure) {
      if (failure.code == 2) {
        return InvalidArgument(StrCat(name, ": position ", failure.value, " is outside the cache"));
      }
      return InvalidArgument(StrCat(name, ": a sequence length of ", failure.value));
    };
    prepared.compute = [=](const KernelContext& k) -> Status {
      ONNXD_RETURN_IF_ERROR(WriteCache(k, programs, settings, s, true));
      ONNXD_RETURN_IF_ERROR(WriteCache(k, programs, settings, s, false));
      if (settings.rotates) ONNXD_RETURN_IF_ERROR(TurnQueries(k, programs, settings, s));
      const void* queries = settings.rotates ? k.scratch<void>() : k.input<void>(0);
      const AttentionPointers pointers{queries, k.output<void>(1), k.output<void>(2),
                                       k.output<void>(0), k.scratch<std::byte>() + turned_bytes};
      return attention.run(k, pointers, [&](LaunchArguments& arguments) {
        arguments.Pointer(k.input<void>(5)).Value(int32_t{s.is_first ? 1 : 0});
        if (settings.softcap > 0) arguments.Value(settings.softcap);
        if (settings.has_bias) {
          arguments.Pointer(k.input<void>(10));
          for (const int64_t stride : bias) arguments.Value(stride);
        }
        if (settings.has_sink) arguments.Pointer(k.input<void>(11));
      });
    };
    return prepared;
  };
  return MakeGpuKernel(prepare, {6});
}

}  // namespace onnxd
