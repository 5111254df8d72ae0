// onnxd inspect MODEL: signature, opsets, metadata, operators and who runs them.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/base/log.h"
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

void PrintJson(const InferenceSession& session) {
  const ModelInfo& info = session.info();
  nlohmann::json metadata = nlohmann::json::object();
  for (const auto& [key, value] : info.metadata) metadata[key] = value;
  const nlohmann::json document = {{"ir_version", info.ir_version},
                                   {"opsets", info.opsets},
                                   {"producer", info.producer_name},
                                   {"producer_version", info.producer_version},
                                   {"inputs", SignatureJson(session.inputs())},
                                   {"outputs", SignatureJson(session.outputs())},
                                   {"operators", info.operator_counts},
                                   {"parameters", info.parameters},
                                   {"nodes_by_provider", info.nodes_by_provider},
                                   {"metadata", metadata}};
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
  for (const auto& [key, value] : info.metadata) {
    std::printf("metadata    %s: %s\n", text(key).c_str(), text(value.substr(0, 200)).c_str());
  }
}

}  // namespace

int Inspect(const InspectFlags& flags) {
  auto options = flags.session.ToOptions();
  if (!options.ok()) return Fail(options.status());
  const auto session = InferenceSession::Load(flags.model, std::move(*options));
  if (!session.ok()) return Fail(session.status().WithContext(flags.model));
  if (flags.json) {
    PrintJson(**session);
  } else {
    PrintText(**session);
  }
  return kExitOk;
}

}  // namespace onnxd
