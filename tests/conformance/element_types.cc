// What ONNX's node cases say for float, asked of another float type: each case of one node whose
// schema takes that type runs with its float operands in it, and must give the recorded numbers
// within the type's precision.
//
//   element_types ROOT TYPE [--known-gaps FILE] [--relative R] [--absolute A] [--filter TEXT]
//
// FILE: lines "TYPE CASE  reason"; text after # is a comment. The exit status is 0 when every case
// passes but those, and none of those passes, unless its reason begins with "random".
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "runtime/base/str_cat.h"
#include "runtime/format/model_reader.h"
#include "runtime/ops/op_schema.h"
#include "runtime/providers/default_providers.h"
#include "runtime/session/inference_session.h"
#include "runtime/tensor/convert.h"
#include "server/inference/compare_values.h"
#include "tests/support/case_folders.h"
#include "tools/test_case.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

struct Flags {
  fs::path root;
  DataType type = DataType::kUndefined;
  std::string known_gaps, filter;
  double relative = 1e-3, absolute = 1e-5;
};

bool IsFloat(const ValueType& type) { return type.is_tensor() && type.element == DataType::kFloat; }

// The type variables of the node that stand for float and may stand for `to`: those of inputs.
std::set<int> VariablesToChange(const Graph& graph, const Node& node, const OpSchema& schema,
                                DataType to) {
  std::set<int> variables;
  const ValueType wanted = ValueType::TensorOf(to);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const OperandRow* row = schema.Input(static_cast<int>(i));
    if (node.inputs[i] == kNoValue || row == nullptr || row->variable < 0) continue;
    if (!IsFloat(graph.value(node.inputs[i]).type)) continue;
    if (schema.type_sets[row->type_set].Contains(wanted)) variables.insert(row->variable);
  }
  return variables;
}

// Changes the inputs of the model's only node; false when nothing can be changed.
bool Retype(Model& model, DataType to) {
  Graph& graph = model.graph;
  if (graph.nodes.size() != 1 || !graph.initializers.empty()) return false;
  const Node& node = graph.nodes[0];
  // A subgraph states the types of its own values.
  for (const auto& [name, attribute] : node.attributes.entries()) {
    if (std::holds_alternative<std::shared_ptr<Graph>>(attribute)) return false;
  }
  const OpSchema* schema = FindOpSchema(node.domain, node.op_type, node.since_version);
  if (schema == nullptr) return false;
  const std::set<int> variables = VariablesToChange(graph, node, *schema, to);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const OperandRow* row = schema->Input(static_cast<int>(i));
    if (node.inputs[i] == kNoValue || row == nullptr || !variables.contains(row->variable))
      continue;
    ValueType& type = graph.value(node.inputs[i]).type;
    if (IsFloat(type)) type.element = to;
  }
  // What the node makes of them is left to inference.
  for (const ValueId id : node.outputs) {
    if (id != kNoValue && IsFloat(graph.value(id).type)) graph.value(id).type = ValueType{};
  }
  return !variables.empty();
}

// The value in the element type of `wanted`, which is float or another float type.
Result<Value> As(const ValueType& wanted, const Value& value) {
  if (const Sequence* sequence = value.sequence(); sequence != nullptr && wanted.inner) {
    auto converted = std::make_shared<Sequence>();
    for (const Value& element : sequence->elements) {
      ONNXD_ASSIGN_OR_RETURN(converted->elements.emplace_back(), As(*wanted.inner, element));
    }
    return Value(std::shared_ptr<const Sequence>(std::move(converted)));
  }
  if (!wanted.is_tensor() || !value.is_tensor() || !IsConvertible(wanted.element)) return value;
  if (value.tensor().type() == wanted.element) return value;
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Converted(value.tensor(), wanted.element));
  return Value(std::move(tensor));
}

// Nothing when the case does not apply to the type.
std::optional<Status> RunCase(const Flags& flags, const fs::path& folder, OptimizationLevel level) {
  SessionOptions options;
  options.denormals_as_zero = true;  // as the program has it
  options.providers = *MakeProviders({});
  options.optimization = level;
  const std::string file = (folder / "model.onnx").string(), data = folder / "test_data_set_0";
  const auto original = InferenceSession::Load(file, options);
  auto model = ReadModelFile(file);
  if (!original.ok() || !model.ok() || !Retype(*model, flags.type)) return std::nullopt;
  auto inputs = ReadInputs(data, **original);
  const auto wanted = ReadOutputs(data, **original);
  if (!inputs.ok() || !wanted.ok()) return std::nullopt;
  const auto run = [&]() -> Status {
    ONNXD_ASSIGN_OR_RETURN(const auto session,
                           InferenceSession::FromModel(std::move(*model), options));
    for (size_t i = 0; i < inputs->size(); ++i) {
      ONNXD_ASSIGN_OR_RETURN((*inputs)[i], As(session->inputs()[i].type, (*inputs)[i]));
    }
    ONNXD_ASSIGN_OR_RETURN(const auto outputs, session->Run(*inputs, {}));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const ValueType& declared = session->outputs()[i].type;
      if (outputs[i].is_tensor() && outputs[i].tensor().type() != declared.element) {
        return Internal(StrCat("output ", i, " has another type than declared"));
      }
      ONNXD_ASSIGN_OR_RETURN(const Value back, As((*original)->outputs()[i].type, outputs[i]));
      ONNXD_RETURN_IF_ERROR(CompareValues(back, (*wanted)[i], flags.relative, flags.absolute)
                                .WithContext(StrCat("output ", i)));
    }
    return Status::Ok();
  };
  return run();
}

// Reasons by case.
std::map<std::string, std::string> ReadGaps(const Flags& flags) {
  std::map<std::string, std::string> gaps;
  std::ifstream in(flags.known_gaps);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string type, name;
    if (!(words >> type >> name) || type != DataTypeName(flags.type)) continue;
    std::getline(words >> std::ws, gaps[name]);
  }
  return gaps;
}

int RunAll(const Flags& flags) {
  const auto gaps = ReadGaps(flags);
  int passed = 0, failed = 0, known = 0, fixed = 0;
  for (const fs::path& folder : CaseFolders(flags.root, {"model.onnx"}, flags.filter)) {
    const std::string name = fs::relative(folder, flags.root).string();
    std::optional<Status> status = RunCase(flags, folder, OptimizationLevel::kDisable);
    if (status && status->ok()) status = RunCase(flags, folder, OptimizationLevel::kAll);
    if (!status) continue;
    const auto gap = gaps.find(name);
    const bool random = gap != gaps.end() && gap->second.starts_with("random");
    if (random || (gap != gaps.end() && !status->ok())) {
      ++known;
    } else if (gap != gaps.end()) {
      ++fixed;
      std::printf("PASSES %s: remove it from the known gaps\n", name.c_str());
    } else if (status->ok()) {
      ++passed;
    } else {
      ++failed;
      std::printf("FAILED %s: %s\n", name.c_str(), status->ToString().c_str());
    }
  }
  std::printf("%s: %d passed, %d failed, %d known gaps, %d known gaps that pass\n",
              std::string(DataTypeName(flags.type)).c_str(), passed, failed, known, fixed);
  return passed > 0 && failed == 0 && fixed == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (argc >= 3) {
    flags.root = argv[1];
    flags.type = DataTypeFromName(argv[2]).value_or(DataType::kUndefined);
  }
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--known-gaps") flags.known_gaps = argv[i + 1];
    if (flag == "--filter") flags.filter = argv[i + 1];
    if (flag == "--relative") flags.relative = std::strtod(argv[i + 1], nullptr);
    if (flag == "--absolute") flags.absolute = std::strtod(argv[i + 1], nullptr);
  }
  if (!fs::is_directory(flags.root) || flags.type == DataType::kUndefined) {
    std::fprintf(stderr, "usage: element_types ROOT double|float16|bfloat16 [--known-gaps FILE]\n");
    return 2;
  }
  return RunAll(flags);
}

}  // namespace
}  // namespace onnxd

int main(int argc, char** argv) { return onnxd::Main(argc, argv); }
