// onnxd tokenizer TOKENIZER OUTPUT: a tokenizer.json as a model, from texts to the inputs of an
// encoder.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "runtime/format/model_writer.h"
#include "runtime/text/tokenizer_json.h"
#include "tools/command.h"

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
  int64_t encoder_length = 0;
};

Result<TokenizerFiles> ReadFiles(std::filesystem::path path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) path /= "tokenizer.json";
  TokenizerFiles files;
  ONNXD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string(), kMostBytes));
  ONNXD_ASSIGN_OR_RETURN(files.tokenizer, ParseObject(text, path));
  const std::filesystem::path config = path.parent_path() / "tokenizer_config.json";
  if (!std::filesystem::exists(config, ignored)) return files;
  ONNXD_ASSIGN_OR_RETURN(files.config, ReadFile(config.string(), kMostBytes));
  ONNXD_ASSIGN_OR_RETURN(const Json parsed, ParseObject(files.config, config));
  files.encoder_length = EncoderLength(parsed);
  return files;
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

// text [batch], and text_pair, -> input_ids, attention_mask, token_type_ids [batch, tokens].
Model TokenizerModel(const std::string& tokenizer, const std::string& config, bool pairs) {
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

Status RunTokenizer(const TokenizerFlags& flags) {
  ONNXD_ASSIGN_OR_RETURN(TokenizerFiles files, ReadFiles(flags.tokenizer));
  Json& tokenizer = files.tokenizer;
  int64_t length = flags.max_length;
  if (length == 0 && (!tokenizer.contains("truncation") || tokenizer["truncation"].is_null())) {
    length = files.encoder_length;
  }
  if (length > 0) {
    tokenizer["truncation"] = {{"direction", "Right"},
                               {"max_length", length},
                               {"strategy", "LongestFirst"},
                               {"stride", 0}};
  }
  const std::string text = tokenizer.dump();
  // Whether it can be served.
  ONNXD_RETURN_IF_ERROR(ParseTokenizerJson(text, files.config).status());
  ONNXD_ASSIGN_OR_RETURN(const std::string bytes,
                         WriteModel(TokenizerModel(text, files.config, flags.pairs)));
  ONNXD_RETURN_IF_ERROR(WriteFile(flags.output, bytes));
  std::printf("%s: text%s [batch] -> input_ids, attention_mask, token_type_ids [batch, tokens]%s\n",
              flags.output.c_str(), flags.pairs ? ", text_pair" : "",
              length > 0 ? StrCat(", ", length, " tokens at most").c_str() : "");
  return Status::Ok();
}

}  // namespace

int WriteTokenizer(const TokenizerFlags& flags) {
  const Status status = RunTokenizer(flags);
  return status.ok() ? kExitOk : Fail(status.WithContext(flags.tokenizer));
}

}  // namespace onnxd
