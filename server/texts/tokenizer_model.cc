#include "server/texts/tokenizer_model.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "runtime/text/tokenizer_json.h"

namespace onnxd {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostBytes = uint64_t{1} << 28;  // of a file

Result<Json> ParseObject(const std::string& text, const std::filesystem::path& path) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument(StrCat(path.string(), " is no JSON object"));
  return json;
}

// What a tokenizer's folder says of the length of its encoder; 0: nothing. Without a limit
// libraries write a number of thirty digits.
int64_t EncoderLength(const Json& config) {
  const auto found = config.find("model_max_length");
  if (found == config.end() || !found->is_number()) return 0;
  const auto length = found->get<double>();
  return length >= 1 && length < 1e6 ? static_cast<int64_t>(length) : 0;
}

struct TokenizerFiles {
  Json tokenizer;
  std::string config = "{}";
  BatchPadding padding;
  int64_t encoder_length = 0;
};

// What ParseTokenizerJson takes is nested little enough for Json::dump, which calls itself.
Result<TokenizerFiles> ReadFiles(std::filesystem::path path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) path /= "tokenizer.json";
  const std::filesystem::path config = path.parent_path() / "tokenizer_config.json";
  TokenizerFiles files;
  ONNXD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string(), kMostBytes));
  const bool has_config = std::filesystem::exists(config, ignored);
  if (has_config) {
    ONNXD_ASSIGN_OR_RETURN(files.config, ReadFile(config.string(), kMostBytes));
  }
  ONNXD_ASSIGN_OR_RETURN(files.tokenizer, ParseObject(text, path));
  ONNXD_ASSIGN_OR_RETURN(const JsonTokenizer parsed, ParseTokenizerJson(text, files.config));
  files.padding = parsed.padding;
  if (!has_config) return files;
  ONNXD_ASSIGN_OR_RETURN(const Json object, ParseObject(files.config, config));
  files.encoder_length = EncoderLength(object);
  return files;
}

bool Says(const Json& tokenizer, const char* section) {
  const auto found = tokenizer.find(section);
  return found != tokenizer.end() && !found->is_null();
}

// As the options want it, else as the encoder or the file does; 0: no limit but the file's.
int64_t Truncate(const TokenizerOptions& options, int64_t encoder_length, Json& tokenizer) {
  int64_t length = options.max_length;
  if (length == 0 && !(options.as_saved && Says(tokenizer, "truncation"))) length = encoder_length;
  if (options.length > 0) length = length > 0 ? std::min(length, options.length) : options.length;
  if (length == 0) return 0;
  tokenizer["truncation"] = {
      {"direction", "Right"}, {"max_length", length}, {"strategy", "LongestFirst"}, {"stride", 0}};
  return length;
}

// To the length, or where it is 0 to that of the longest.
void SetPadding(int64_t length, const BatchPadding& padding, Json& tokenizer) {
  const Json strategy = length > 0 ? Json{{"Fixed", length}} : Json("BatchLongest");
  tokenizer["padding"] = {{"strategy", strategy},
                          {"direction", padding.left ? "Left" : "Right"},
                          {"pad_to_multiple_of", nullptr},
                          {"pad_id", padding.pad_id},
                          {"pad_type_id", 0},
                          {"pad_token", "[PAD]"}};
}

ValueId AddTensor(Graph& graph, const std::string& name, DataType type,
                  std::vector<std::string> symbols) {
  ValueType value;
  value.kind = ValueType::Kind::kTensor;
  value.element = type;
  value.shape.emplace();
  for (std::string& symbol : symbols) {
    Dimension dimension;
    dimension.symbol = std::move(symbol);
    value.shape->push_back(std::move(dimension));
  }
  return graph.AddValue(name, std::move(value));
}

Model ModelOf(const std::string& tokenizer, const std::string& config, bool pairs) {
  Model model;
  model.ir_version = 9;
  model.opsets = {{"", 18}, {pairs ? "onnxd" : "ai.onnx.contrib", 1}};
  model.producer_name = "onnxd";
  Graph& graph = model.graph;
  graph.name = "tokenizer";
  graph.inputs = {AddTensor(graph, "text", DataType::kString, {"batch"})};
  for (const char* name : {"input_ids", "attention_mask", "token_type_ids"}) {
    graph.outputs.push_back(AddTensor(graph, name, DataType::kInt64, {"batch", "tokens"}));
  }
  Node tokenize;
  tokenize.name = "tokenize";
  tokenize.domain = pairs ? "onnxd" : "ai.onnx.contrib";
  tokenize.op_type = pairs ? "JsonPairTokenizer" : "HfJsonTokenizer";
  tokenize.since_version = 1;
  if (pairs) graph.inputs.push_back(AddTensor(graph, "text_pair", DataType::kString, {"batch"}));
  tokenize.inputs = graph.inputs;
  tokenize.outputs = graph.outputs;
  if (!pairs) tokenize.outputs.pop_back();
  tokenize.attributes.Set("tokenizer_vocab", tokenizer);
  tokenize.attributes.Set("tokenizer_config", config);
  graph.nodes.push_back(std::move(tokenize));
  if (pairs) return model;
  Node types;
  types.name = "one_text";
  types.op_type = "Sub";
  types.since_version = 14;
  types.inputs = {graph.outputs[1], graph.outputs[1]};
  types.outputs = {graph.outputs[2]};
  graph.nodes.push_back(std::move(types));
  return model;
}

}  // namespace

Result<TokenizerModel> MakeTokenizerModel(const std::string& path,
                                          const TokenizerOptions& options) {
  ONNXD_ASSIGN_OR_RETURN(TokenizerFiles files, ReadFiles(path));
  TokenizerModel made;
  made.max_length = Truncate(options, files.encoder_length, files.tokenizer);
  const bool pads_otherwise = !options.as_saved && Says(files.tokenizer, "padding");
  if (options.length > 0 || pads_otherwise) {
    SetPadding(options.length, files.padding, files.tokenizer);
  }
  made.pad_id = files.padding.pad_id;
  const std::string text = files.tokenizer.dump();
  ONNXD_RETURN_IF_ERROR(ParseTokenizerJson(text, files.config).status());  // as it is now
  made.model = ModelOf(text, files.config, options.pairs);
  return made;
}

}  // namespace onnxd
