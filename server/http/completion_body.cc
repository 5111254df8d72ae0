#include "server/http/completion_body.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/str_cat.h"
#include "server/http/generation_parameters.h"
#include "server/http/json_document.h"

namespace onnxd {
namespace {

constexpr size_t kMostChoices = 64;
// Of all answers' prompts: each has its own.
constexpr size_t kMostPromptBytes = size_t{64} << 20;
// What a completion of a text may be if nothing says so.
constexpr int64_t kFewTokens = 16;
constexpr const char* kPromptForm = "\"prompt\" must be a text, or an array of texts or tokens";

// Known to the API, and not there: what means the same as leaving it out is taken.
constexpr std::array<std::string_view, 9> kNotThere = {
    "suffix",        "tools", "tool_choice", "functions",      "echo",
    "function_call", "audio", "prediction",  "response_format"};

// false, 0, "", [], {"type": "text"}, "none" and "auto".
bool MeansNothing(std::string_view json) {
  constexpr std::array<std::string_view, 7> kNothing = {"false", "0",        "\"\"",    "[]",
                                                        "null",  "\"none\"", "\"auto\""};
  if (std::find(kNothing.begin(), kNothing.end(), json) != kNothing.end()) return true;
  std::string packed;
  for (const char c : json.substr(0, 64)) {
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') packed += c;
  }
  return packed == R"({"type":"text"})";
}

class Reader {
 public:
  Reader(CompletionForm form, int64_t max_depth) : form_(form), max_depth_(max_depth) {}

  Result<CompletionBody> Read(const HttpBody& body) {
    ONNXD_RETURN_IF_ERROR(ReadJsonObject(
        body, [&](std::string_view key, JsonValue value) { return ReadField(key, value); }));
    if (form_ == CompletionForm::kChat) ONNXD_RETURN_IF_ERROR(WriteConversation());
    const auto choices = static_cast<size_t>(parsed_.choices);
    const size_t answers = std::max(prompts_.size(), tokens_.size()) * choices;
    if (answers == 0) {
      return InvalidArgument("the body needs \"prompt\": a text, or an array of texts or tokens");
    }
    if (answers > kMostChoices) {
      return InvalidArgument(StrCat(answers, " answers, of which ", kMostChoices, " are the most"));
    }
    ONNXD_RETURN_IF_ERROR(CheckPromptBytes(choices));
    for (const std::string& prompt : prompts_) {
      parsed_.prompts.insert(parsed_.prompts.end(), choices, prompt);
    }
    for (const auto& tokens : tokens_) {
      auto& all = parsed_.options.prompt_tokens;
      all.insert(all.end(), choices, tokens);
    }
    parsed_.prompts.resize(answers);
    ONNXD_RETURN_IF_ERROR(SetLikeliest());
    return std::move(parsed_);
  }

 private:
  Status ReadField(std::string_view key, JsonValue value) {
    ONNXD_ASSIGN_OR_RETURN(const bool is_parameter,
                           ReadGenerationParameter(key, value, parsed_.options));
    if (is_parameter) return Status::Ok();
    if (form_ == CompletionForm::kText && key == "prompt") return ReadPrompt(value);
    if (form_ == CompletionForm::kChat && key == "messages") {
      return KeepJson(value, "messages", messages_);
    }
    if (form_ == CompletionForm::kChat && key == "chat_template_kwargs") {
      return IsNull(value) ? Status::Ok() : KeepJson(value, "chat_template_kwargs", variables_);
    }
    if (IsNull(value)) return Status::Ok();
    if (key == "model") return ReadText(key, value, parsed_.model);
    if (key == "n" || key == "best_of") return ReadChoices(key, value);
    if (key == "stream") return ReadSwitch(key, value, parsed_.streams);
    if (key == "echo" && form_ == CompletionForm::kText) {
      return ReadSwitch(key, value, parsed_.options.echoes_prompt);
    }
    if (key == "logprobs" && form_ == CompletionForm::kChat) {
      return ReadSwitch(key, value, wants_scores_);
    }
    if (key == "logprobs" || (key == "top_logprobs" && form_ == CompletionForm::kChat)) {
      return ReadLikeliest(key, value);
    }
    if (key == "stream_options") return ReadStreamOptions(value);
    if (std::find(kNotThere.begin(), kNotThere.end(), key) == kNotThere.end()) {
      return CheckIgnored(value, max_depth_);
    }
    std::string json;
    ONNXD_RETURN_IF_ERROR(KeepJson(value, key, json));
    return MeansNothing(json) ? Status::Ok()
                              : Unimplemented(StrCat("\"", key, "\" is not there yet"));
  }

  static Status ReadText(std::string_view key, JsonValue value, std::string& text) {
    std::string_view read;
    if (value.get_string().get(read) != simdjson::SUCCESS) {
      return InvalidArgument(StrCat("\"", key, "\" must be a string"));
    }
    text = read;
    return Status::Ok();
  }

  static Status ReadSwitch(std::string_view key, JsonValue value, bool& flag) {
    if (value.get_bool().get(flag) == simdjson::SUCCESS) return Status::Ok();
    return InvalidArgument(StrCat("\"", key, "\" must be true or false"));
  }

  Status ReadChoices(std::string_view key, JsonValue value) {
    int64_t choices;
    if (value.get_int64().get(choices) != simdjson::SUCCESS || choices < 1 ||
        choices > int64_t{kMostChoices}) {
      return InvalidArgument(StrCat("\"", key, "\" must be 1 to ", kMostChoices));
    }
    if (key == "n") parsed_.choices = choices;
    if (key == "best_of" && choices > 1) return Unimplemented("\"best_of\" is not there yet");
    return Status::Ok();
  }

  Status CheckPromptBytes(size_t choices) const {
    size_t bytes = 0;
    for (const std::string& prompt : prompts_) bytes += prompt.size();
    for (const auto& tokens : tokens_) bytes += tokens.size() * sizeof(int64_t);
    if (bytes <= kMostPromptBytes / choices) return Status::Ok();
    return InvalidArgument(StrCat(choices, " times prompts of ", bytes, " bytes, of which ",
                                  kMostPromptBytes, " are the most"));
  }

  Status ReadLikeliest(std::string_view key, JsonValue value) {
    int64_t count;
    if (value.get_int64().get(count) != simdjson::SUCCESS || count < 0 || count > kMostLikeliest) {
      return InvalidArgument(StrCat("\"", key, "\" must be 0 to ", kMostLikeliest));
    }
    likeliest_ = count;
    return Status::Ok();
  }

  Status SetLikeliest() {
    GenerationOptions& options = parsed_.options;
    if (form_ == CompletionForm::kText) {
      options.likeliest = likeliest_;
      return Status::Ok();
    }
    if (!wants_scores_ && likeliest_.value_or(0) > 0) {
      return InvalidArgument("\"top_logprobs\" needs \"logprobs\": true");
    }
    if (wants_scores_) options.likeliest = likeliest_.value_or(0);
    return Status::Ok();
  }

  Status ReadStreamOptions(JsonValue value) {
    JsonObject object;
    if (value.get_object().get(object) != simdjson::SUCCESS) {
      return InvalidArgument("\"stream_options\" must be an object");
    }
    return ForEachField(object, [&](std::string_view key, JsonValue option) {
      if (key != "include_usage") return CheckIgnored(option, max_depth_);
      return ReadSwitch(key, option, parsed_.reports_usage);
    });
  }

  // A text; texts; tokens; or several arrays of tokens.
  Status ReadPrompt(JsonValue value) {
    JsonArray array;
    if (value.get_array().get(array) != simdjson::SUCCESS) return ReadPromptText(value);
    return ForEachElement(array, [&](JsonValue one) {
      JsonArray tokens;
      int64_t token;
      if (one.get_array().get(tokens) == simdjson::SUCCESS) {
        if (has_plain_tokens_) return InvalidArgument(kPromptForm);
        ONNXD_RETURN_IF_ERROR(AddTokens());
        return ForEachElement(tokens, [&](JsonValue inner) {
          return inner.get_int64().get(token) == simdjson::SUCCESS ? AddToken(token)
                                                                   : InvalidArgument(kPromptForm);
        });
      }
      if (one.get_int64().get(token) != simdjson::SUCCESS) return ReadPromptText(one);
      if (!has_plain_tokens_) ONNXD_RETURN_IF_ERROR(AddTokens());
      if (tokens_.size() > 1) return InvalidArgument(kPromptForm);
      has_plain_tokens_ = true;
      return AddToken(token);
    });
  }

  Status ReadPromptText(JsonValue value) {
    std::string_view text;
    if (value.get_string().get(text) != simdjson::SUCCESS || !tokens_.empty()) {
      return InvalidArgument(kPromptForm);
    }
    if (prompts_.size() == kMostChoices) {
      return InvalidArgument(StrCat("more than ", kMostChoices, " prompts"));
    }
    prompts_.emplace_back(text);
    return Status::Ok();
  }

  Status AddTokens() {
    if (!prompts_.empty()) return InvalidArgument(kPromptForm);
    if (tokens_.size() == kMostChoices) {
      return InvalidArgument(StrCat("more than ", kMostChoices, " prompts"));
    }
    tokens_.emplace_back();
    return Status::Ok();
  }

  Status AddToken(int64_t token) {
    if (token < 0) return InvalidArgument("\"prompt\" has a token below 0");
    tokens_.back().push_back(token);
    return Status::Ok();
  }

  static Status KeepJson(JsonValue value, std::string_view key, std::string& json) {
    std::string_view raw;
    if (simdjson::to_json_string(value).get(raw) != simdjson::SUCCESS) {
      return InvalidArgument(StrCat("\"", key, "\" is malformed"));
    }
    while (!raw.empty() && static_cast<unsigned char>(raw.back()) <= ' ') raw.remove_suffix(1);
    json = raw;
    return Status::Ok();
  }

  Status WriteConversation() {
    if (messages_.empty() || messages_.front() != '[') {
      return InvalidArgument("the body needs \"messages\": an array of objects");
    }
    parsed_.options.is_chat = true;
    prompts_ = {StrCat("{\"messages\":", messages_,
                       ",\"variables\":", variables_.empty() ? "{}" : variables_, "}")};
    return Status::Ok();
  }

  const CompletionForm form_;
  const int64_t max_depth_;
  CompletionBody parsed_;
  std::vector<std::string> prompts_;
  std::vector<std::vector<int64_t>> tokens_;
  bool has_plain_tokens_ = false;
  bool wants_scores_ = false;
  std::optional<int64_t> likeliest_;
  std::string messages_, variables_;
};

}  // namespace

Result<CompletionBody> ReadCompletionBody(const HttpBody& body, CompletionForm form,
                                          int64_t max_depth) {
  ONNXD_ASSIGN_OR_RETURN(CompletionBody parsed, Reader(form, max_depth).Read(body));
  if (form == CompletionForm::kText && !parsed.options.max_tokens) {
    parsed.options.max_tokens = kFewTokens;
  }
  return parsed;
}

}  // namespace onnxd
