#include "server/texts/found_texts.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "runtime/base/str_cat.h"
#include "server/texts/json_file.h"
#include "server/texts/text_plan.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kTokenizer = "tokenizer.json";

bool IsFolderName(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-';
  });
}

// What follows the encoder.
struct Modules {
  std::string pooling;  // the folder that says how; empty: none
  bool normalizes = false;
  std::string other;  // the type of one that is not there
};

Modules ModulesOf(const Json& list) {
  Modules modules;
  if (!list.is_array()) return modules;
  for (const Json& module : list) {
    const std::string type = TextOf(module, "type");
    const std::string kind = type.substr(type.rfind('.') + 1);
    if (kind == "Pooling" && IsFolderName(TextOf(module, "path"))) {
      modules.pooling = TextOf(module, "path");
    } else if (kind == "Normalize") {
      modules.normalizes = true;
    } else if (kind != "Transformer") {
      modules.other = type;
    }
  }
  return modules;
}

// mean, cls or last; nullopt for another way, or several at once.
std::optional<std::string> PoolingOf(const Json& config) {
  std::vector<std::string> modes = {TextOf(config, "pooling_mode")};
  if (modes[0].empty()) modes.clear();
  constexpr std::string_view kPrefix = "pooling_mode_";
  for (const auto& [key, value] : config.items()) {
    if (key.starts_with(kPrefix) && value == true) modes.push_back(key.substr(kPrefix.size()));
  }
  if (modes.size() != 1) return std::nullopt;
  if (modes[0] == "mean_tokens" || modes[0] == "mean") return "mean";
  if (modes[0] == "cls_token" || modes[0] == "cls") return "cls";
  if (modes[0] == "lasttoken") return "last";
  return std::nullopt;
}

bool CanPool(const std::vector<TensorSignature>& outputs) {
  bool has_vectors = false;
  for (const TensorSignature& output : outputs) {
    if (output.name == "sentence_embedding") return false;
    has_vectors = has_vectors || HasTokenVectors(output);
  }
  return has_vectors;
}

void FindPooling(const fs::path& folder, FoundTexts& found) {
  const Modules modules = ModulesOf(ReadJsonFile(folder / "modules.json"));
  if (!modules.other.empty()) {
    found.warning = StrCat("modules.json wants ", modules.other.substr(0, 128),
                           ", which is not there: vectors of tokens are answered");
    return;
  }
  if (modules.pooling.empty()) return;
  Json config = ReadJsonFile(folder / modules.pooling / "config.json");
  if (!config.is_object()) config = ReadJsonFile(folder / (modules.pooling + "_config.json"));
  const auto pooling = config.is_object() ? PoolingOf(config) : std::nullopt;
  if (!pooling) {
    found.warning =
        StrCat(modules.pooling,
               "/config.json wants neither mean, cls nor last: ", "vectors of tokens are answered");
    return;
  }
  found.settings.pooling = *pooling;
  found.settings.normalize = found.settings.normalize || modules.normalizes;
}

}  // namespace

std::string TextFolderOf(const std::string& model_path) {
  const fs::path beside = fs::absolute(model_path).parent_path();
  std::error_code none;
  const bool is_of_hub = beside.filename() == "onnx" && !fs::exists(beside / kTokenizer, none);
  return (is_of_hub ? beside.parent_path() : beside).string();
}

bool HasTokenizer(const std::string& folder) {
  std::error_code none;
  return fs::is_regular_file(fs::path(folder) / kTokenizer, none);
}

FoundTexts FindTexts(const TextSettings& wanted, const std::string& folder,
                     const std::vector<TensorSignature>& inputs,
                     const std::vector<TensorSignature>& outputs) {
  const auto is_tokens = [](const TensorSignature& input) { return IsTokenInput(input.name); };
  const bool takes = !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), is_tokens) &&
                     HasTokenizer(folder);
  if (!takes) return {};
  FoundTexts found{wanted, ""};
  found.settings.tokenizer = kTokenizer;
  if (wanted.max_length == 0) {
    const Json config = ReadJsonFile(fs::path(folder) / "sentence_bert_config.json");
    const auto length = config.is_object() ? config.find("max_seq_length") : config.end();
    if (config.is_object() && length != config.end() && length->is_number_integer()) {
      found.settings.max_length = std::clamp<int64_t>(length->get<int64_t>(), 0, 1'000'000);
    }
  }
  if (wanted.pooling.empty() && CanPool(outputs)) FindPooling(folder, found);
  return found;
}

}  // namespace onnxd
