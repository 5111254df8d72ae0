#include "runtime/providers/fused/place_function.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/providers/fused/body_writer.h"

namespace onnxd {
namespace {

// Which inputs of the graph the nodes read, or are the result, in the order in which they come.
std::vector<size_t> InputsOf(const Graph& graph, const PlaceFunction::Parts& parts) {
  std::vector<size_t> inputs;
  const auto add = [&](ValueId id) {
    const size_t position = InputPosition(graph, id);
    if (id == parts.given || position == graph.inputs.size()) return;
    if (std::find(inputs.begin(), inputs.end(), position) == inputs.end()) {
      inputs.push_back(position);
    }
  };
  for (const size_t n : parts.nodes) {
    for (const ValueId id : graph.nodes[n].inputs) add(id);
  }
  add(parts.result);
  return inputs;
}

}  // namespace

Result<PlaceFunction> PlaceFunction::Make(const Graph& graph, const FusedShapes& shapes,
                                          std::string name, Parts parts) {
  PlaceFunction made;
  made.name_ = std::move(name);
  made.inputs_ = InputsOf(graph, parts);
  made.outputs_ = parts.outputs;
  BodyWriter writer(graph);
  if (parts.given != kNoValue) writer.Define(parts.given, "value");
  std::vector<DataType> types;
  std::vector<const Shape*> operand_shapes;
  for (size_t i = 0; i < made.inputs_.size(); ++i) {
    const ValueId id = graph.inputs[made.inputs_[i]];
    types.push_back(graph.value(id).type.element);
    operand_shapes.push_back(&shapes.of(id));
    writer.Define(id, StrCat("x", i));
  }
  ONNXD_ASSIGN_OR_RETURN(made.operands_,
                         BroadcastOperands::Make(types, operand_shapes, shapes.of(parts.shape),
                                                 StrCat(made.name_, "_"), parts.columns));
  for (const size_t n : parts.nodes) writer.Add(graph.nodes[n]);
  made.text_ = made.operands_.Types();
  made.parameters_ = made.operands_.Parameters();
  made.names_ = made.operands_.Names();
  std::string stores;
  for (size_t i = 0; i < parts.outputs.size(); ++i) {
    const ValueId id = graph.outputs[parts.outputs[i]];
    const std::string type = StrCat(made.name_, "_Y", i), to = StrCat(made.name_, "_y", i);
    made.text_ += DefineType(type, graph.value(id).type.element);
    made.parameters_ += StrCat("GLOBAL ", type, "* ", to, ", ");
    made.names_ += to + ", ";
    stores += StrCat(type, "_PUT(", to, ", place, ", writer.NameOf(id), "); ");
  }
  const auto compute_type = [&](ValueId id) {
    return id == kNoValue ? std::string_view("f32") : ComputeName(graph.value(id).type.element);
  };
  made.text_ +=
      StrCat("FUNCTION ", compute_type(parts.result), " ", made.name_, "(", made.parameters_,
             compute_type(parts.given),
             " value, i64 place, INDEX column) { const INDEX i = (INDEX)place; (void)column; ",
             made.operands_.Loads(), writer.statements(), stores, "return ",
             parts.result == kNoValue ? "0" : writer.NameOf(parts.result), "; }\n");
  return made;
}

std::string PlaceFunction::Call(std::string_view value, std::string_view place,
                                std::string_view column) const {
  return StrCat(name_, "(", names_, value, ", ", place, ", (INDEX)(", column, "))");
}

void PlaceFunction::Fill(const KernelContext& whole, LaunchArguments& arguments) const {
  operands_.Fill(whole, inputs_, arguments);
  for (const size_t output : outputs_) arguments.Pointer(whole.output<void>(output));
}

}  // namespace onnxd
