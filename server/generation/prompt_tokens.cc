#include "server/generation/prompt_tokens.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;

Result<std::vector<int64_t>> TokensOf(const GenerationPlan& plan, const std::string& text,
                                      bool is_chat) {
  if (is_chat) {
    return InvalidArgument("the model has no chat template");
  }
  if (text.size() > kMostBytes)
    return InvalidArgument(StrCat("a prompt of ", text.size(), " bytes"));
  ONNXD_ASSIGN_OR_RETURN(Encoding encoding, plan.tokenizer->Encode(text));
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
