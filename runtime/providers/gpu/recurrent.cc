// LSTM, GRU and RNN. Source of the equations: ONNX LSTM-14, GRU-14, RNN-14.
//
// The input part of all gates of all steps and directions is one product. A group of lanes then
// takes a row of the batch in one direction through its steps, a lane several units of the state;
// the recurrence is turned first, so that neighbours read neighbours.
#include <array>
#include <cstdio>

#include "runtime/base/str_cat.h"
#include "runtime/ops/recurrent_settings.h"
#include "runtime/providers/gpu/pointwise_expressions.h"
#include "runtime/providers/gpu/product.h"

namespace onnxd {
namespace {

constexpr std::string_view kSource = R"(
// [directions, columns, HIDDEN] to [directions, HIDDEN, columns].
KERNEL turn_recurrence(GLOBAL const X* r, GLOBAL X* turned, i64 columns, i64 count) {
  const i64 i = GLOBAL_INDEX;
  if (i >= count) return;
  const i64 column = i % columns, p = i / columns % HIDDEN, direction = i / columns / HIDDEN;
  turned[i] = r[(direction * columns + column) * HIDDEN + p];
}

#define COLUMNS (GATES * HIDDEN)
#define CLIPPED(x) (CLIP > 0.0f ? fmin(fmax(x, -CLIP), CLIP) : (x))
// The recurrent part of gate `gate` of `unit`: `state` times the recurrence.
#define ADD_PRODUCT(sum, state, gate) \
  for (i32 p = 0; p < HIDDEN; ++p) { \
    sum += state[p] * X_GET(recurrence, (i64)p * COLUMNS + (gate) * HIDDEN + unit); \
  }
#define GATE(gate) at_gates[(gate) * HIDDEN + unit]

KERNEL recurrent_steps(GLOBAL const f32* gates, GLOBAL const X* recurrence, GLOBAL const X* bias,
                       GLOBAL const i32* lengths, GLOBAL const X* first_h, GLOBAL const X* first_c,
                       GLOBAL const X* peepholes, GLOBAL X* y, GLOBAL X* last_h, GLOBAL X* last_c,
                       i64 steps, i64 batch, i64 directions) {
  LOCAL f32 h[HIDDEN];
  LOCAL f32 c[HIDDEN];
  LOCAL f32 next[HIDDEN];
  const i64 row = GROUP(0) % batch, direction = GROUP(0) / batch;
  const i64 state = BATCH_FIRST ? row * directions + direction : direction * batch + row;
  const bool is_reverse = REVERSE_FIRST || direction == 1;
  recurrence += direction * HIDDEN * COLUMNS;
  i64 length = steps;
#if HAS_LENGTHS
  length = (i64)lengths[row];
  length = length < 0 ? 0 : length > steps ? steps : length;
#endif
  for (i32 unit = LANE(0); unit < HIDDEN; unit += LANES_IN_ALL) {
    h[unit] = c[unit] = 0.0f;
#if HAS_FIRST_H
    h[unit] = X_GET(first_h, state * HIDDEN + unit);
#endif
#if HAS_FIRST_C
    c[unit] = X_GET(first_c, state * HIDDEN + unit);
#endif
  }
  BARRIER();
  for (i64 step = 0; step < length; ++step) {
    const i64 position = is_reverse ? length - 1 - step : step;
    const i64 of_x = BATCH_FIRST ? row * steps + position : position * batch + row;
    GLOBAL const f32* at_gates = gates + (direction * steps * batch + of_x) * COLUMNS;
    const i64 of_y = BATCH_FIRST ? (row * steps + position) * directions + direction
                                 : (position * directions + direction) * batch + row;
    STEP
    for (i32 unit = LANE(0); unit < HIDDEN; unit += LANES_IN_ALL) {
      h[unit] = next[unit];
#if HAS_Y
      X_PUT(y, of_y * HIDDEN + unit, h[unit]);
#endif
    }
    (void)of_y;
    BARRIER();
  }
  for (i32 unit = LANE(0); unit < HIDDEN; unit += LANES_IN_ALL) {
#if HAS_Y
    for (i64 position = length; position < steps; ++position) {
      const i64 of_y = BATCH_FIRST ? (row * steps + position) * directions + direction
                                   : (position * directions + direction) * batch + row;
      X_PUT(y, of_y * HIDDEN + unit, 0.0f);
    }
#endif
#if HAS_LAST_H
    X_PUT(last_h, state * HIDDEN + unit, h[unit]);
#endif
#if HAS_LAST_C
    X_PUT(last_c, state * HIDDEN + unit, c[unit]);
#endif
  }
}
)";

// STEP leaves the new state in `next`; a BARRIER stands behind what reads h.
constexpr std::string_view kLstmStep = R"(
#define PEEPHOLE(gate) (HAS_PEEPHOLES ? X_GET(peepholes, (direction * 3 + (gate)) * HIDDEN + unit) : 0.0f)
#define STEP \
  for (i32 unit = LANE(0); unit < HIDDEN; unit += LANES_IN_ALL) { \
    f32 input = GATE(0), output = GATE(1), forget = GATE(2), cell = GATE(3); \
    ADD_PRODUCT(input, h, 0) \
    ADD_PRODUCT(output, h, 1) \
    ADD_PRODUCT(forget, h, 2) \
    ADD_PRODUCT(cell, h, 3) \
    input = gate_f(direction, CLIPPED(input + PEEPHOLE(0) * c[unit])); \
    forget = INPUT_FORGET ? 1.0f - input \
                          : gate_f(direction, CLIPPED(forget + PEEPHOLE(2) * c[unit])); \
    c[unit] = forget * c[unit] + input * gate_g(direction, CLIPPED(cell)); \
    output = gate_f(direction, CLIPPED(output + PEEPHOLE(1) * c[unit])); \
    next[unit] = output * gate_h(direction, CLIPPED(c[unit])); \
  } \
  BARRIER();
)";

constexpr std::string_view kRnnStep = R"(
#define STEP \
  for (i32 unit = LANE(0); unit < HIDDEN; unit += LANES_IN_ALL) { \
    f32 sum = GATE(0); \
    ADD_PRODUCT(sum, h, 0) \
    next[unit] = gate_f(direction, CLIPPED(sum)); \
  } \
  BARRIER();
)";

// c holds what resets the state, or the state as it is reset.
constexpr std::string_view kGruStep = R"(
#define STEP \
  for (i32 unit = LANE(0); unit < HIDDEN; unit += LANES_IN_ALL) { \
    f32 update = GATE(0), reset = GATE(1); \
    ADD_PRODUCT(update, h, 0) \
    ADD_PRODUCT(reset, h, 1) \
    next[unit] = gate_f(direction, CLIPPED(update)); \
    reset = gate_f(direction, CLIPPED(reset)); \
    c[unit] = LINEAR_BEFORE_RESET ? reset : reset * h[unit]; \
  } \
  BARRIER(); \
  for (i32 unit = LANE(0); unit < HIDDEN; unit += LANES_IN_ALL) { \
    f32 candidate = HAS_BIAS ? X_GET(bias, direction * 6 * HIDDEN + 5 * HIDDEN + unit) : 0.0f; \
    if (LINEAR_BEFORE_RESET) { \
      ADD_PRODUCT(candidate, h, 2) \
      candidate *= c[unit]; \
    } else { \
      ADD_PRODUCT(candidate, c, 2) \
    } \
    candidate = gate_g(direction, CLIPPED(GATE(2) + candidate)); \
    next[unit] = (1.0f - next[unit]) * candidate + next[unit] * h[unit]; \
  } \
  BARRIER();
)";

std::string Number(float value) {
  char text[48];
  std::snprintf(text, sizeof(text), "((f32)%.9g)", static_cast<double>(value));
  return text;
}

std::string TextOf(const GateFunction& f) {
  const std::string a = Number(f.alpha), b = Number(f.beta);
  if (f.name == "Sigmoid") return "sigmoid_f32(x)";
  if (f.name == "Tanh") return "tanh(x)";
  if (f.name == "Relu") return "fmax(x, 0.0f)";
  if (f.name == "Affine") return StrCat(a, " * x + ", b);
  if (f.name == "LeakyRelu") return StrCat("x < 0.0f ? ", a, " * x : x");
  if (f.name == "ThresholdedRelu") return StrCat("x > ", a, " ? x : 0.0f");
  if (f.name == "ScaledTanh") return StrCat(a, " * tanh(", b, " * x)");
  if (f.name == "HardSigmoid") return StrCat("fmin(fmax(", a, " * x + ", b, ", 0.0f), 1.0f)");
  if (f.name == "Elu") return StrCat("elu_f32(x, ", a, ")");
  if (f.name == "Softsign") return "x / (1.0f + fabs(x))";
  return "softplus_f32(x)";
}

// gate_f, gate_g, gate_h of a direction.
std::string GateFunctions(const RecurrentSettings& s) {
  std::string text;
  const auto each = s.functions.size() / static_cast<size_t>(s.directions);
  for (size_t i = 0; i < each; ++i) {
    text += StrCat("FUNCTION f32 gate_", std::string(1, "fgh"[i]), "(i64 direction, f32 x) {");
    if (s.directions == 2)
      text += StrCat(" if (direction == 1) return ", TextOf(s.FunctionsOf(1)[i]), ";");
    text += StrCat(" return ", TextOf(s.FunctionsOf(0)[i]), "; }\n");
  }
  return text;
}

struct Sizes {
  int64_t steps, batch, input, hidden, gates, directions;
  int64_t columns() const { return gates * hidden; }
  int64_t rows() const { return steps * batch; }
};

Sizes SizesOf(const RecurrentSettings& s, const Shape& x, const Shape& recurrence) {
  return {x[s.batch_first ? 1 : 0],
          x[s.batch_first ? 0 : 1],
          x[2],
          recurrence[2],
          s.gates,
          s.directions};
}

// gates[direction, rows, columns] of x[rows, input] and w[direction, columns, input], biases
// included; of the recurrence, too, but for a GRU's candidate.
ProductPlan InputGates(const Sizes& z, DataType type, bool has_bias) {
  ProductText text;
  text.a = text.b = type;
  text.y = DataType::kFloat;
  text.accumulator = AccumulatorOf(type);
  text.setup = "b += batch * n * k;";
  text.load_a = "A_GET(a, (i64)i * k + p)";
  text.load_b = "B_GET(b, (i64)j * k + p)";
  text.a_rows = text.b_rows = text.b_by_p = true;
  if (has_bias) {
    text.parameters = "GLOBAL const A* bias, i64 shared, ";
    text.result =
        "sum + A_GET(bias, batch * 2 * n + j) + "
        "(j < shared ? A_GET(bias, batch * 2 * n + n + j) : (A_C)0)";
  }
  const int64_t shared = z.gates == 3 ? 2 * z.hidden : z.columns();
  const auto fill = [has_bias, shared](const KernelContext& k, LaunchArguments& arguments) {
    if (has_bias) arguments.Pointer(k.input<void>(3)).Value(shared);
  };
  ProductPlan plan{text, {z.directions, z.rows(), z.columns(), z.input}, 0, 1, fill};
  plan.product = LibraryProduct{.operands = type,
                                .result = DataType::kFloat,
                                .batch = z.directions,
                                .m = z.rows(),
                                .n = z.columns(),
                                .k = z.input,
                                .transpose_b = true,
                                .b_stride = z.columns() * z.input};
  return plan;
}

size_t Aligned(int64_t bytes) { return static_cast<size_t>((bytes + 255) / 256 * 256); }

// Lanes of a group: a power of two.
int64_t LanesFor(int64_t hidden) {
  int64_t lanes = 32;
  while (lanes < hidden && lanes < 256) lanes *= 2;
  return lanes;
}

std::string SourceOf(const RecurrentSettings& s, const KernelInfo& info, int64_t hidden) {
  const auto reads = [&](size_t i) { return info.node.input(i) != kNoValue ? 1 : 0; };
  const auto writes = [&](size_t i) {
    return i < info.node.outputs.size() && info.node.outputs[i] != kNoValue ? 1 : 0;
  };
  const bool is_lstm = s.cell == RecurrentCell::kLstm;
  return StrCat(DefineType("X", info.InputType(0)), Define("HIDDEN", hidden),
                Define("GATES", s.gates), Define("LANES_IN_ALL", LanesFor(hidden)),
                Define("CLIP", Number(s.clip)), Define("BATCH_FIRST", s.batch_first ? 1 : 0),
                Define("REVERSE_FIRST", s.reverse_first ? 1 : 0),
                Define("INPUT_FORGET", s.input_forget ? 1 : 0),
                Define("LINEAR_BEFORE_RESET", s.linear_before_reset ? 1 : 0),
                Define("HAS_BIAS", reads(3)), Define("HAS_LENGTHS", reads(4)),
                Define("HAS_FIRST_H", reads(5)), Define("HAS_FIRST_C", is_lstm ? reads(6) : 0),
                Define("HAS_PEEPHOLES", is_lstm ? reads(7) : 0), Define("HAS_Y", writes(0)),
                Define("HAS_LAST_H", writes(1)), Define("HAS_LAST_C", is_lstm ? writes(2) : 0),
                PointwiseFunctions(), GateFunctions(s),
                is_lstm                         ? kLstmStep
                : s.cell == RecurrentCell::kGru ? kGruStep
                                                : kRnnStep,
                kSource);
}

constexpr int64_t kMostHidden = 2048;  // three states are in local memory

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuRecurrent(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (!IsDeviceType(type) || !IsFloatingPoint(type) || type == DataType::kDouble) {
    return DeclineOnDevice(info, type);
  }
  const auto& recurrence = info.input_types[2].shape;
  if (!recurrence || recurrence->size() != 3 || !(*recurrence)[2].known() ||
      (*recurrence)[2].value < 1 || (*recurrence)[2].value > kMostHidden) {
    return Unimplemented(
        StrCat(info.node.op_type, " with a state that is not of 1 to ", kMostHidden, " units"));
  }
  ONNXD_ASSIGN_OR_RETURN(const RecurrentSettings settings, ReadRecurrentSettings(info.node));
  const int64_t hidden = (*recurrence)[2].value;
  const bool has_bias = info.node.input(3) != kNoValue;
  const std::string source = SourceOf(settings, info, hidden);
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Sizes z = SizesOf(settings, context.InputShape(0), context.InputShape(2));
    if (z.batch == 0) return NothingToDo();
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram turn, device.FindKernel(source, "turn_recurrence"));
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram steps, device.FindKernel(source, "recurrent_steps"));
    const Shape of_gates{z.directions, z.steps, z.batch, z.columns()};
    ONNXD_RETURN_IF_ERROR(of_gates.Validate());  // X may be empty, and have any number of rows
    OperandInfo gates_operand;
    gates_operand.present = true;
    gates_operand.kind = ValueType::Kind::kTensor;
    gates_operand.type = DataType::kFloat;
    gates_operand.shape = &of_gates;
    ONNXD_ASSIGN_OR_RETURN(const PreparedKernel product,
                           PrepareProduct(device, InputGates(z, type, has_bias),
                                          {context.node, context.inputs,
                                           std::span(&gates_operand, 1), context.threads}));
    const int64_t count = z.directions * z.hidden * z.columns();
    const size_t gates_bytes = Aligned(of_gates.ElementCount() * 4);
    const size_t turned_bytes = Aligned(count * DataTypeBits(type) / 8);
    PreparedKernel prepared;
    prepared.scratch_bytes = gates_bytes + turned_bytes + product.scratch_bytes;
    prepared.compute = [=](const KernelContext& k) -> Status {
      auto* const gates = k.scratch<std::byte>();
      auto* const turned = gates + gates_bytes;
      const std::array<void*, 4> inputs = {const_cast<void*>(k.input<void>(0)),
                                           const_cast<void*>(k.input<void>(1)), nullptr,
                                           const_cast<void*>(k.input<void>(3))};
      const std::array<void*, 1> outputs = {gates};
      ONNXD_RETURN_IF_ERROR(product.compute(KernelContext(
          inputs, outputs, turned + turned_bytes, nullptr, nullptr, &k.stream(), k.step())));
      LaunchArguments turning;
      turning.Pointer(k.input<void>(2)).Pointer(turned).Value(z.columns()).Value(count);
      ONNXD_RETURN_IF_ERROR(Launch(k, turn, LaunchGrid::Over(count), turning));
      LaunchArguments arguments;
      arguments.Pointer(gates).Pointer(turned);
      for (const size_t i : {3, 4, 5, 6, 7}) arguments.Pointer(k.input<void>(i));
      for (const size_t i : {0, 1, 2}) arguments.Pointer(k.output<void>(i));
      arguments.Value(z.steps).Value(z.batch).Value(z.directions);
      LaunchGrid grid;
      grid.groups[0] = static_cast<uint32_t>(z.batch * z.directions);
      grid.lanes[0] = static_cast<uint32_t>(LanesFor(z.hidden));
      return Launch(k, steps, grid, arguments);
    };
    return prepared;
  });
}

}  // namespace onnxd
