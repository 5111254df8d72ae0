// Control flow: output types are those of the subgraphs.
#include "runtime/ops/fused_graph.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

// The element types of the then branch; shapes may differ between branches and stay unknown.
Status If(InferenceContext& context) {
  const std::shared_ptr<Graph> branch = context.attributes().Subgraph("then_branch");
  const std::shared_ptr<Graph> other = context.attributes().Subgraph("else_branch");
  for (const auto& graph : {branch, other}) {
    if (graph == nullptr) return context.Fail("it lacks a branch");
    if (graph->outputs.size() != context.output_count()) {
      return context.Fail("a branch has another number of outputs than the node");
    }
  }
  for (size_t i = 0; i < context.output_count(); ++i) {
    ValueType type = branch->value(branch->outputs[i]).type;
    const ValueType& alternative = other->value(other->outputs[i]).type;
    if (!type.known()) type = alternative;
    if (type.is_tensor() && alternative.is_tensor() && type.element != alternative.element) {
      return context.Fail("its branches give different types");
    }
    type.shape.reset();
    context.SetType(i, std::move(type));
  }
  return Status::Ok();
}

// What a body computes per iteration, stacked along a new axis.
ValueType Stacked(const ValueType& each, int64_t axis) {
  ValueType type = each;
  if (!type.shape) return type;
  const auto at = NormalizeAxis(axis, static_cast<int>(type.shape->size()) + 1);
  if (!at.ok()) {
    type.shape.reset();
    return type;
  }
  type.shape->insert(type.shape->begin() + *at, Dimension());
  return type;
}

// Carried values keep their type; their shapes may change from one iteration to the next.
Status Loop(InferenceContext& context) {
  const std::shared_ptr<Graph> body = context.attributes().Subgraph("body");
  if (body == nullptr || context.input_count() < 2) return context.Fail("it lacks a body");
  const size_t carried = context.input_count() - 2;
  for (size_t i = 0; i < context.output_count() && i + 1 < body->outputs.size(); ++i) {
    ValueType type = body->value(body->outputs[i + 1]).type;
    if (i >= carried) {
      context.SetType(i, Stacked(type, 0));
      continue;
    }
    type.shape.reset();
    context.SetType(i, std::move(type));
  }
  return Status::Ok();
}

Status Scan(InferenceContext& context) {
  const std::shared_ptr<Graph> body = context.attributes().Subgraph("body");
  if (body == nullptr) return context.Fail("it lacks a body");
  const bool batched = context.version() < 9;
  const auto scanned = static_cast<size_t>(context.attributes().Int("num_scan_inputs", 0));
  const size_t operands = context.input_count() - (batched ? 1 : 0);
  if (scanned > operands) return context.Fail("num_scan_inputs is too large");
  const size_t states = operands - scanned;
  const auto axes = context.attributes().Ints("scan_output_axes");
  for (size_t i = 0; i < context.output_count() && i < body->outputs.size(); ++i) {
    ValueType type = body->value(body->outputs[i]).type;
    if (i >= states) type = Stacked(type, i - states < axes.size() ? axes[i - states] : 0);
    if (batched || i < states) type.shape.reset();
    context.SetType(i, std::move(type));
  }
  return Status::Ok();
}

Status SequenceMap(InferenceContext& context) {
  const std::shared_ptr<Graph> body = context.attributes().Subgraph("body");
  if (body == nullptr) return context.Fail("it lacks a body");
  for (size_t i = 0; i < context.output_count() && i < body->outputs.size(); ++i) {
    ValueType element = body->value(body->outputs[i]).type;
    element.shape.reset();
    if (element.known()) context.SetType(i, ValueType::SequenceOf(std::move(element)));
  }
  return Status::Ok();
}

// One sequence of tokens per row, all as long as max_length; of beams, several with their scores.
Status TokenSearch(InferenceContext& context) {
  if (context.attributes().Subgraph("decoder") == nullptr)
    return context.Fail("it lacks a decoder");
  const SymbolicShape* prompt = context.shape(0);
  const Dimension batch = prompt != nullptr && !prompt->empty() ? (*prompt)[0] : Dimension();
  const auto first_of = [&](size_t input) {
    const auto known = context.known_ints(input);
    return known && known->size() == 1 && (*known)[0] >= 0 ? Dimension((*known)[0]) : Dimension();
  };
  const Dimension length = first_of(1);
  context.SetElement(0, DataType::kInt32);
  const std::string& op = context.node().op_type;
  if (op == "GreedySearch" || op == "Sampling") {
    context.SetShape(0, {batch, length});
    return Status::Ok();
  }
  const Dimension returned = first_of(4);
  context.SetShape(0, {batch, returned, length});
  context.SetElement(1, DataType::kFloat);
  for (const size_t i : {5, 6}) {
    if (context.HasInput(i)) context.SetElement(1, context.input(i).element);
  }
  context.SetShape(1, {batch, returned});
  return Status::Ok();
}

// onnxd::Fused: what its graph computes of the inputs.
Status Fused(InferenceContext& context) {
  const FusedGraph* graph = context.attributes().Find<FusedGraph>("graph");
  if (graph == nullptr || (*graph)->inputs.size() != context.input_count() ||
      (*graph)->outputs.size() != context.output_count()) {
    return context.Fail("its graph does not fit");
  }
  std::vector<ValueType> inputs;
  std::vector<const Tensor*> known;
  for (size_t i = 0; i < context.input_count(); ++i) {
    inputs.push_back(context.input(i));
    known.push_back(context.known(i));
  }
  ONNXD_ASSIGN_OR_RETURN(const std::vector<ValueType> types,
                         InferFusedGraph(**graph, inputs, known));
  for (size_t i = 0; i < context.output_count(); ++i) {
    context.SetType(i, types[static_cast<size_t>((*graph)->outputs[i])]);
  }
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "If", If},
    {"", "Loop", Loop},
    {"", "Scan", Scan},
    {"", "SequenceMap", SequenceMap},
    {"onnxd", "Fused", Fused},
    {"com.microsoft", "BeamSearch", TokenSearch},
    {"com.microsoft", "GreedySearch", TokenSearch},
    {"com.microsoft", "Sampling", TokenSearch},
    {"com.microsoft", "WhisperBeamSearch", TokenSearch},
};

void Bind(Graph& body, size_t input, ValueType type) {
  if (input >= body.inputs.size()) return;
  ValueType& declared = body.value(body.inputs[input]).type;
  if (!declared.known()) declared = std::move(type);
}

}  // namespace

void BindBodyInputs(const Node& node, std::span<const ValueType> inputs, Graph& body) {
  const auto without_shape = [](ValueType type) {
    type.shape.reset();
    return type;
  };
  if (node.Is("Loop")) {
    Bind(body, 0, ValueType::TensorOf(DataType::kInt64, SymbolicShape{}));
    Bind(body, 1, ValueType::TensorOf(DataType::kBool, SymbolicShape{}));
    for (size_t i = 2; i < inputs.size(); ++i) Bind(body, i, without_shape(inputs[i]));
  }
  if (node.Is("Scan")) {
    const size_t first = node.since_version < 9 ? 1 : 0;
    for (size_t i = first; i < inputs.size(); ++i) Bind(body, i - first, without_shape(inputs[i]));
  }
  if (node.Is("SequenceMap")) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool sequence = inputs[i].kind == ValueType::Kind::kSequence && inputs[i].inner;
      Bind(body, i, without_shape(sequence ? *inputs[i].inner : inputs[i]));
    }
  }
}

std::span<const InferenceRule> ControlFlowRules() { return kRules; }

}  // namespace onnxd
