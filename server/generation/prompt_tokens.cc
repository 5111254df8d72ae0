#include "server/generation/prompt_tokens.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;

Status Malformed(std::string_view what) { return InvalidArgument(StrCat("messages: ", what)); }

// A message with its content as one text: that of its parts, where it has several.
Result<TemplateDict> FlatMessage(const TemplateValue& message) {
  if (message.dict() == nullptr) return Malformed("each must be an object");
  TemplateDict flat = *message.dict();
  const TemplateValue* const role = flat.Find("role");
  if (role == nullptr || role->text() == nullptr) return Malformed("each needs a \"role\"");
  const TemplateValue* const content = flat.Find("content");
  if (content == nullptr || content->list() == nullptr) return flat;
  std::string text;
  for (const TemplateValue& part : *content->list()) {
    const TemplateValue* const own = part.dict() == nullptr ? nullptr : part.dict()->Find("text");
    if (own == nullptr || own->text() == nullptr) {
      return Malformed("the parts of a \"content\" must be texts, the model takes nothing else");
    }
    text += *own->text();
  }
  flat.Set("content", std::move(text));
  return flat;
}

// {"messages": [...], "variables": {...}}
Result<TemplateDict> VariablesOf(const GenerationPlan& plan, const std::string& conversation) {
  ONNXD_ASSIGN_OR_RETURN(const TemplateValue given, TemplateValueOfJson(conversation));
  const TemplateDict* const dict = given.dict();
  const TemplateValue* const messages = dict == nullptr ? nullptr : dict->Find("messages");
  const TemplateValue* const others = dict == nullptr ? nullptr : dict->Find("variables");
  if (messages == nullptr || messages->list() == nullptr || messages->list()->empty()) {
    return Malformed("it must be an array of objects");
  }
  TemplateList flat;
  for (const TemplateValue& message : *messages->list()) {
    ONNXD_ASSIGN_OR_RETURN(TemplateDict one, FlatMessage(message));
    flat.emplace_back(std::move(one));
  }
  TemplateDict variables;
  for (const auto& [name, text] : plan.special_tokens) variables.Append(name, text);
  variables.Append("add_generation_prompt", true);
  if (others != nullptr && others->dict() != nullptr) {
    for (const auto& [name, value] : others->dict()->entries()) variables.Set(name, value);
  }
  variables.Set("messages", std::move(flat));
  return variables;
}

Result<std::vector<int64_t>> TokensOf(const GenerationPlan& plan, const std::string& text,
                                      bool is_chat) {
  if (text.size() > kMostBytes) {
    return InvalidArgument(StrCat("a prompt of ", text.size(), " bytes"));
  }
  if (!is_chat) {
    ONNXD_ASSIGN_OR_RETURN(Encoding encoding, plan.tokenizer->Encode(text));
    return std::move(encoding.ids);
  }
  if (plan.chat == nullptr) return InvalidArgument(plan.why_no_chat);
  ONNXD_ASSIGN_OR_RETURN(const TemplateDict variables, VariablesOf(plan, text));
  const auto prompt = plan.chat->Render(variables);
  if (!prompt.ok()) return prompt.status().WithContext("the chat template");
  ONNXD_ASSIGN_OR_RETURN(Encoding encoding, plan.tokenizer->EncodeText(*prompt));
  return std::move(encoding.ids);
}

}  // namespace

std::vector<Value> PromptOf(const std::string& text, bool is_chat) {
  Tensor texts = Tensor::Of<std::string>(Shape{1}, {text});
  return {std::move(texts), Tensor::Scalar<bool>(is_chat)};
}

Result<std::vector<Value>> PromptTokens(const GenerationPlan& plan, std::span<const Value> inputs) {
  const std::string& text = inputs[0].tensor().elements<std::string>()[0];
  const bool is_chat = inputs[1].tensor().elements<bool>()[0];
  ONNXD_ASSIGN_OR_RETURN(const std::vector<int64_t> tokens, TokensOf(plan, text, is_chat));
  ONNXD_ASSIGN_OR_RETURN(
      Tensor ids, Tensor::Create(DataType::kInt64, Shape{static_cast<int64_t>(tokens.size())}));
  std::copy(tokens.begin(), tokens.end(), ids.mutable_data<int64_t>());
  return std::vector<Value>{std::move(ids)};
}

}  // namespace onnxd
