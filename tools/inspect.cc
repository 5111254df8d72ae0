// onnxd inspect MODEL: signature, opsets, metadata, operators and who runs them.
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/format/model_reader.h"
#include "runtime/graph/graph_text.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/session/device_partition.h"
#include "runtime/session/model_preparation.h"
#include "tools/command.h"

namespace onnxd {
namespace {

nlohmann::json SignatureJson(const std::vector<TensorSignature>& signature) {
  auto list = nlohmann::json::array();
  for (const TensorSignature& tensor : signature) {
    list.push_back({{"name", tensor.name}, {"type", ToString(tensor.type)}});
  }
  return list;
}

void PrintJson(const InferenceSession& session, const std::vector<TensorSignature>* values) {
  const ModelInfo& info = session.info();
  nlohmann::json metadata = nlohmann::json::object();
  for (const auto& [key, value] : info.metadata) metadata[key] = value;
  nlohmann::json document = {{"ir_version", info.ir_version},
                             {"opsets", info.opsets},
                             {"producer", info.producer_name},
                             {"producer_version", info.producer_version},
                             {"inputs", SignatureJson(session.inputs())},
                             {"outputs", SignatureJson(session.outputs())},
                             {"operators", info.operator_counts},
                             {"parameters", info.parameters},
                             {"nodes_by_provider", info.nodes_by_provider},
                             {"rows_depend", info.rows_depend},
                             {"metadata", metadata}};
  if (values != nullptr) document["values"] = SignatureJson(*values);
  std::printf("%s\n",
              document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

void PrintText(const InferenceSession& session) {
  const ModelInfo& info = session.info();
  const auto text = [](const std::string& s) { return EscapeControl(s); };
  std::printf("ir version  %lld\n", static_cast<long long>(info.ir_version));
  std::printf("producer    %s %s\n", text(info.producer_name).c_str(),
              text(info.producer_version).c_str());
  for (const auto& [domain, version] : info.opsets) {
    std::printf("opset       %s %lld\n", domain.empty() ? "ai.onnx" : text(domain).c_str(),
                static_cast<long long>(version));
  }
  std::printf("parameters  %lld\n", static_cast<long long>(info.parameters));
  for (const auto& tensor : session.inputs()) {
    std::printf("input       %s: %s\n", text(tensor.name).c_str(), ToString(tensor.type).c_str());
  }
  for (const auto& tensor : session.outputs()) {
    std::printf("output      %s: %s\n", text(tensor.name).c_str(), ToString(tensor.type).c_str());
  }
  for (const auto& [op, count] : info.operator_counts) {
    std::printf("operator    %s x %lld\n", text(op).c_str(), static_cast<long long>(count));
  }
  for (const auto& [provider, count] : info.nodes_by_provider) {
    std::printf("provider    %s runs %lld nodes after optimization\n", provider.c_str(),
                static_cast<long long>(count));
  }
  std::printf("batching    %s\n", info.rows_depend.empty()
                                      ? "if a trial agrees: nothing in the graph speaks against it"
                                      : StrCat("no: ", text(info.rows_depend)).c_str());
  for (const auto& [key, value] : info.metadata) {
    std::printf("metadata    %s: %s\n", text(key).c_str(), text(value.substr(0, 200)).c_str());
  }
}

// What shape inference says of every value that a node computes, before any rewriting.
Result<std::vector<TensorSignature>> ComputedValues(const std::string& path) {
  ONNXD_ASSIGN_OR_RETURN(Model model, ReadModelFile(path));
  ONNXD_RETURN_IF_ERROR(InferGraph(model.graph));
  std::vector<TensorSignature> values;
  for (const Node& node : model.graph.nodes) {
    for (const ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      values.push_back({model.graph.value(id).name, model.graph.value(id).type});
    }
  }
  return values;
}

Status PrintStage(const InspectFlags& flags, const SessionOptions& options) {
  ONNXD_ASSIGN_OR_RETURN(Model model, ReadModelFile(flags.model));
  ONNXD_RETURN_IF_ERROR(CheckModel(model));
  ONNXD_RETURN_IF_ERROR(PrepareModel(model, options, *StageFromName(flags.stage)));
  const std::string text = GraphText(model.graph);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    std::printf("%s\n", EscapeControl(text.substr(begin, end - begin)).c_str());
    begin = end + 1;
  }
  return Status::Ok();
}

// A node a line: who runs it, and why not a provider that stands before.
Status PrintPartitions(const InspectFlags& flags, const SessionOptions& options) {
  ONNXD_ASSIGN_OR_RETURN(Model model, ReadModelFile(flags.model));
  ONNXD_RETURN_IF_ERROR(CheckModel(model));
  ONNXD_RETURN_IF_ERROR(PrepareModel(model, options, Stage::kFinal));
  const auto placements = ExplainPartition(model.graph, options.providers);
  std::map<std::string, int64_t> nodes;
  for (size_t i = 0; i < placements.size(); ++i) {
    const auto& [provider, reason] = placements[i];
    ++nodes[provider];
    std::printf("%-8s %s%s\n", provider.c_str(),
                EscapeControl(Describe(model.graph.nodes[i])).c_str(),
                reason.empty() ? "" : StrCat(": ", EscapeControl(reason)).c_str());
  }
  for (const auto& [provider, count] : nodes) {
    std::printf("%s runs %lld nodes\n", provider.c_str(), static_cast<long long>(count));
  }
  return Status::Ok();
}

}  // namespace

int Inspect(const InspectFlags& flags) {
  auto options = flags.session.ToOptions();
  if (!options.ok()) return Fail(options.status());
  if (!flags.stage.empty()) {
    const Status status = PrintStage(flags, *options);
    return status.ok() ? kExitOk : Fail(status.WithContext(flags.model));
  }
  if (flags.partitions) {
    const Status status = PrintPartitions(flags, *options);
    return status.ok() ? kExitOk : Fail(status.WithContext(flags.model));
  }
  const auto session = InferenceSession::Load(flags.model, std::move(*options));
  if (!session.ok()) return Fail(session.status().WithContext(flags.model));
  std::vector<TensorSignature> values;
  if (flags.values) {
    auto computed = ComputedValues(flags.model);
    if (!computed.ok()) return Fail(computed.status().WithContext(flags.model));
    values = std::move(*computed);
  }
  if (flags.json) {
    PrintJson(**session, flags.values ? &values : nullptr);
    return kExitOk;
  }
  PrintText(**session);
  for (const TensorSignature& value : values) {
    std::printf("value       %s: %s\n", EscapeControl(value.name).c_str(),
                ToString(value.type).c_str());
  }
  return kExitOk;
}

}  // namespace onnxd
