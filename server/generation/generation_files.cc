#include "server/generation/generation_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "runtime/base/file.h"
#include "server/texts/json_file.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kGenaiConfig = "genai_config.json";
constexpr uint64_t kMostTemplateBytes = 1 << 20;
constexpr int64_t kMostContext = int64_t{1} << 24;

// Null where there is none.
const Json& MemberOf(const Json& object, const char* key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

std::optional<double> NumberOf(const Json& object, const char* key) {
  const Json& value = MemberOf(object, key);
  if (!value.is_number()) return std::nullopt;
  return value.get<double>();
}

// A number, or a list of them.
std::vector<int64_t> TokensOf(const Json& value) {
  std::vector<int64_t> tokens;
  const auto add = [&tokens](const Json& one) {
    if (one.is_number_integer()) tokens.push_back(one.get<int64_t>());
  };
  add(value);
  if (value.is_array()) std::for_each(value.begin(), value.end(), add);
  return tokens;
}

void ReadSampling(const Json& config, SamplingParameters& sampling) {
  SamplingParameters read = sampling;
  read.temperature = NumberOf(config, "temperature").value_or(read.temperature);
  read.top_p = NumberOf(config, "top_p").value_or(read.top_p);
  read.min_p = NumberOf(config, "min_p").value_or(read.min_p);
  read.top_k = static_cast<int64_t>(
      std::clamp(NumberOf(config, "top_k").value_or(static_cast<double>(read.top_k)), 0.0, 1e9));
  read.repetition_penalty =
      NumberOf(config, "repetition_penalty").value_or(read.repetition_penalty);
  if (MemberOf(config, "do_sample") == false) read.temperature = 0;
  if (CheckSampling(read).ok()) sampling = read;
}

int64_t ContextOf(const Json& config) {
  for (const char* key : {"max_position_embeddings", "n_positions", "context_length"}) {
    const auto length = NumberOf(config, key);
    if (length && *length >= 1 && *length <= kMostContext) return static_cast<int64_t>(*length);
  }
  return 0;
}

// A text, or of several the one named "default".
std::string TemplateOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return "";
  for (const Json& one : value) {
    if (TextOf(one, "name") == "default") return TextOf(one, "template");
  }
  return "";
}

Result<std::string> ReadTemplate(const GenerationSettings& settings, const fs::path& folder,
                                 const Json& tokenizer_config) {
  if (!settings.chat_template.empty()) {
    return ReadFile((folder / settings.chat_template).string(), kMostTemplateBytes);
  }
  const auto beside = ReadFile((folder / "chat_template.jinja").string(), kMostTemplateBytes);
  if (beside.ok()) return *beside;
  const Json file = ReadJsonFile(folder / "chat_template.json");
  const std::string text = TemplateOf(MemberOf(file, "chat_template"));
  return text.empty() ? TemplateOf(MemberOf(tokenizer_config, "chat_template")) : text;
}

}  // namespace

bool SaysGeneration(const GenerationSettings& settings, const std::string& folder) {
  if (!settings.finds_files()) return settings.active();
  std::error_code none;
  return fs::exists(fs::path(folder) / kGenerationConfig, none) ||
         fs::exists(fs::path(folder) / kGenaiConfig, none);
}

Result<GenerationFiles> ReadGenerationFiles(const GenerationSettings& settings,
                                            const std::string& folder) {
  const fs::path path(folder);
  const Json config = ReadJsonFile(path / "config.json");
  const Json generation = ReadJsonFile(path / kGenerationConfig);
  const Json genai = ReadJsonFile(path / kGenaiConfig);
  const Json tokenizer = ReadJsonFile(path / "tokenizer_config.json");
  GenerationFiles files;
  for (const Json* one : {&genai, &config}) {
    const Json& model = one == &genai ? MemberOf(genai, "model") : config;
    if (files.context_length == 0) files.context_length = ContextOf(model);
    if (files.context_length == 0) files.context_length = ContextOf(MemberOf(model, "text_config"));
  }
  for (const Json* one : {&generation, &MemberOf(genai, "model"), &config}) {
    if (files.stop_tokens.empty()) files.stop_tokens = TokensOf(MemberOf(*one, "eos_token_id"));
  }
  ReadSampling(MemberOf(genai, "search"), files.sampling);
  ReadSampling(generation, files.sampling);
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const Json& token = MemberOf(tokenizer, name);
    std::string text = token.is_object() ? TextOf(token, "content") : TextOf(tokenizer, name);
    if (!text.empty()) files.special_tokens[name] = std::move(text);
  }
  ONNXD_ASSIGN_OR_RETURN(files.chat_template, ReadTemplate(settings, path, tokenizer));
  return files;
}

}  // namespace onnxd
