// onnxd::ElementwiseChain: several elementwise operations on floats, tile by tile. Attributes: the
// names of the operations in order; two operands for each (the second of a unary one is not read),
// counting inputs first, then results; two bounds for each, which Clip uses. The last result is the
// output, whose shape the inputs have or repeat along.
#include <algorithm>
#include <array>
#include <map>

#include "runtime/base/str_cat.h"
#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kTile =
    2048;  // floats; a handful of them stay in the first or second-level cache
constexpr size_t kMostOperations = 64, kMostInputs = 64;

struct Operation {
  enum class Kind { kUnary, kBinary, kClip, kSquare };
  Kind kind = Kind::kUnary;
  math::Unary unary = math::Unary::kRelu;
  math::Binary binary = math::Binary::kAdd;
  size_t a = 0, b = 0;  // inputs, then results
  float low = 0, high = 0;
  size_t slot = 0;  // the buffer of the result; that of the last is the output
};

const std::map<std::string, math::Unary>& UnaryNames() {
  using math::Unary;
  static const std::map<std::string, Unary> names = {
      {"Relu", Unary::kRelu}, {"Sigmoid", Unary::kSigmoid},  {"Tanh", Unary::kTanh},
      {"Exp", Unary::kExp},   {"Erf", Unary::kErf},          {"Sqrt", Unary::kSqrt},
      {"Abs", Unary::kAbs},   {"Neg", Unary::kNeg},          {"HardSwish", Unary::kHardSwish},
      {"Gelu", Unary::kGelu}, {"FastGelu", Unary::kFastGelu}};
  return names;
}

const std::map<std::string, math::Binary>& BinaryNames() {
  using math::Binary;
  static const std::map<std::string, Binary> names = {
      {"Add", Binary::kAdd}, {"Sub", Binary::kSub}, {"Mul", Binary::kMul}, {"Div", Binary::kDiv}};
  return names;
}

Result<Operation> OperationOf(const Node& node, const std::string& name) {
  Operation operation;
  if (const auto unary = UnaryNames().find(name); unary != UnaryNames().end()) {
    operation.unary = unary->second;
  } else if (const auto binary = BinaryNames().find(name); binary != BinaryNames().end()) {
    operation.kind = Operation::Kind::kBinary;
    operation.binary = binary->second;
  } else if (name == "Clip") {
    operation.kind = Operation::Kind::kClip;
  } else if (name == "Square") {
    operation.kind = Operation::Kind::kSquare;
  } else {
    return InvalidArgument(StrCat(Describe(node), ": there is no operation '", name, "'"));
  }
  return operation;
}

// Gives each result a buffer that no later reader of another one needs; returns how many there are.
size_t AssignSlots(std::vector<Operation>& operations, size_t inputs) {
  std::vector<size_t> last_use(operations.size(), 0);
  for (size_t i = 0; i < operations.size(); ++i) {
    for (const size_t operand : {operations[i].a, operations[i].b}) {
      if (operand >= inputs) last_use[operand - inputs] = i;
    }
  }
  std::vector<size_t> busy_until;  // by slot: the operation that reads it last
  for (size_t i = 0; i + 1 < operations.size(); ++i) {
    size_t slot = 0;
    while (slot < busy_until.size() && busy_until[slot] > i) ++slot;
    if (slot == busy_until.size()) busy_until.push_back(0);
    busy_until[slot] = last_use[i];
    operations[i].slot = slot;
  }
  return busy_until.size();
}

Result<std::vector<Operation>> OperationsOf(const Node& node) {
  const auto names = node.attributes.Strings("operations");
  const auto operands = node.attributes.Ints("operands");
  const auto bounds = node.attributes.Floats("bounds");
  const size_t count = names.size();
  if (count == 0 || count > kMostOperations || node.inputs.size() > kMostInputs ||
      operands.size() != 2 * count || bounds.size() != 2 * count) {
    return InvalidArgument(StrCat(Describe(node), ": its attributes do not fit each other"));
  }
  std::vector<Operation> operations;
  for (size_t i = 0; i < count; ++i) {
    ONNXD_ASSIGN_OR_RETURN(Operation operation, OperationOf(node, names[i]));
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const int64_t operand = operands[2 * i + side];
      if (operand < 0 || operand >= static_cast<int64_t>(node.inputs.size() + i)) {
        return InvalidArgument(
            StrCat(Describe(node), ": operation ", i, " reads operand ", operand));
      }
      (side == 0 ? operation.a : operation.b) = static_cast<size_t>(operand);
    }
    operation.low = bounds[2 * i];
    operation.high = bounds[2 * i + 1];
    operations.push_back(operation);
  }
  return operations;
}

// How the elements of an input repeat: every `period`; 1: one number.
struct ChainPlan {
  int64_t count = 0;
  std::vector<int64_t> periods;  // by input
  std::vector<size_t> repeated;  // inputs whose period is shorter than a tile: copied to fill one
  int64_t tile = kTile;          // a multiple of all these periods
  int64_t segment = 0;           // tiles end at its multiples: those of the longer periods
  std::vector<Operation> operations;
  size_t slots = 0;
  size_t buffers() const { return slots + repeated.size(); }
};

Status PlanPeriods(const PrepareContext& context, ChainPlan& plan) {
  const Shape& out = context.OutputShape(0);
  plan.count = plan.segment = out.ElementCount();
  int64_t short_period = 1;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    const Shape& shape = context.InputShape(i);
    const int64_t period = shape.ElementCount();
    // The last axes of the output, behind axes of extent 1.
    bool fits = shape.rank() <= out.rank();
    int64_t covered = 1;
    for (int axis = shape.rank() - 1; fits && axis >= 0 && covered < period; --axis) {
      fits = shape[axis] == out[axis + out.rank() - shape.rank()];
      covered *= shape[axis];
    }
    if (!fits || period == 0 || plan.count % period != 0) {
      return InvalidArgument(StrCat(Describe(context.node), ": input ", i, " of shape ",
                                    shape.ToString(), " does not repeat along ", out.ToString()));
    }
    plan.periods.push_back(period);
    if (period == 1 || period == plan.count) continue;
    if (period <= kTile) {
      plan.repeated.push_back(i);
      short_period = std::max(short_period, period);
    } else {
      plan.segment = std::min(plan.segment, period);
    }
  }
  plan.tile = kTile / short_period * short_period;
  return Status::Ok();
}

class TileRunner {
 public:
  TileRunner(const ChainPlan& plan, const KernelContext& k, float* buffers)
      : plan_(plan), k_(k), buffers_(buffers) {
    for (size_t i = 0; i < plan.repeated.size(); ++i) {
      const size_t input = plan.repeated[i];
      float* to = Buffer(plan.slots + i);
      for (int64_t done = 0; done < plan.tile; done += plan.periods[input]) {
        std::copy_n(k.input<float>(input), plan.periods[input], to + done);
      }
    }
  }

  // Elements [begin, begin + n), which one tile of one segment holds.
  void Run(int64_t begin, int64_t n) {
    const math::Simd& simd = math::CurrentSimd();
    for (size_t i = 0; i < plan_.operations.size(); ++i) {
      const Operation& operation = plan_.operations[i];
      const Operand a = OperandAt(operation.a, begin);
      float* out =
          i + 1 == plan_.operations.size() ? k_.output<float>(0) + begin : Buffer(operation.slot);
      switch (operation.kind) {
        case Operation::Kind::kBinary: {
          const Operand b = OperandAt(operation.b, begin);
          simd.binary(operation.binary, a.data, b.data, out, n, a.step, b.step);
          break;
        }
        case Operation::Kind::kSquare:
          simd.binary(math::Binary::kMul, a.data, a.data, out, n, a.step, a.step);
          break;
        case Operation::Kind::kUnary:
          simd.unary(operation.unary, Whole(a, out, n), out, n);
          break;
        case Operation::Kind::kClip:
          simd.clip(Whole(a, out, n), out, n, operation.low, operation.high);
          break;
      }
    }
  }

 private:
  struct Operand {
    const float* data;
    int64_t step;
  };

  float* Buffer(size_t index) { return buffers_ + static_cast<int64_t>(index) * kTile; }

  Operand OperandAt(size_t operand, int64_t begin) {
    const size_t inputs = plan_.periods.size();
    if (operand >= inputs) return {Buffer(plan_.operations[operand - inputs].slot), 1};
    const float* data = k_.input<float>(operand);
    const int64_t period = plan_.periods[operand];
    if (period == 1) return {data, plan_.count == 1 ? 1 : 0};
    const auto found = std::find(plan_.repeated.begin(), plan_.repeated.end(), operand);
    if (found != plan_.repeated.end()) {
      return {Buffer(plan_.slots + static_cast<size_t>(found - plan_.repeated.begin())), 1};
    }
    return {data + begin % period, 1};
  }

  // One number is written out for operations that take no step.
  static const float* Whole(const Operand& a, float* out, int64_t n) {
    if (a.step == 1) return a.data;
    std::fill_n(out, n, *a.data);
    return out;
  }

  const ChainPlan& plan_;
  const KernelContext& k_;
  float* buffers_;
};

constexpr int64_t kMaxChunks = 16;

void RunChain(const ChainPlan& plan, const KernelContext& k) {
  const int64_t per_segment = (plan.segment + plan.tile - 1) / plan.tile;
  const int64_t tiles = plan.count / plan.segment * per_segment;
  const int64_t chunks = std::min<int64_t>({kMaxChunks, tiles, k.pool().threads()});
  k.pool().ParallelFor(chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const auto buffers = static_cast<int64_t>(plan.buffers());
      TileRunner runner(plan, k, k.scratch<float>() + chunk * buffers * kTile);
      for (int64_t t = tiles * chunk / chunks; t < tiles * (chunk + 1) / chunks; ++t) {
        const int64_t within = t % per_segment * plan.tile;
        runner.Run(t / per_segment * plan.segment + within,
                   std::min(plan.tile, plan.segment - within));
      }
    }
  });
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeElementwiseChain(const KernelInfo& info) {
  for (size_t i = 0; i < info.node.inputs.size(); ++i) {
    if (info.InputType(i) != DataType::kFloat) {
      return DeclineType(info.node.op_type, info.InputType(i));
    }
  }
  ONNXD_ASSIGN_OR_RETURN(std::vector<Operation> operations, OperationsOf(info.node));
  const size_t slots = AssignSlots(operations, info.node.inputs.size());
  return MakeKernel([operations, slots](const PrepareContext& context) -> Result<PreparedKernel> {
    auto plan = std::make_shared<ChainPlan>();
    plan->operations = operations;
    plan->slots = slots;
    PreparedKernel prepared;
    if (context.OutputShape(0).ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    ONNXD_RETURN_IF_ERROR(PlanPeriods(context, *plan));
    const int64_t chunks = std::min<int64_t>(kMaxChunks, context.threads);
    prepared.scratch_bytes =
        static_cast<size_t>(chunks) * plan->buffers() * static_cast<size_t>(kTile) * sizeof(float);
    prepared.compute = [plan](const KernelContext& k) {
      RunChain(*plan, k);
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
