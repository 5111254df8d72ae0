#include "server/http/log_probabilities.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_set>

#include "runtime/base/str_cat.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

constexpr float kLeast = -9999;  // what never comes has no logarithm

std::string NumberOf(const LikelyToken& token) {
  if (std::isnan(token.log_probability)) return "null";
  return StrCat(std::max(token.log_probability, kLeast));
}

std::string TextOf(const LikelyToken& token) {
  if (IsUtf8(token.bytes)) return token.bytes;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "bytes:";
  for (const char byte : token.bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += {'\\', 'x', kDigits[value >> 4], kDigits[value & 15]};
  }
  return text;
}

std::string Quoted(std::string_view text) {
  std::string out;
  AppendJsonString(out, text);
  return out;
}

size_t Characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  }));
}

template <typename Items, typename Write>
std::string List(const Items& items, const Write& write) {
  std::string out;
  for (const auto& item : items) out += (out.empty() ? "" : ",") + write(item);
  return StrCat("[", out, "]");
}

// The likeliest by their texts, and the token itself. Of equal texts the likelier one is there.
std::string ByText(const ScoredToken& scored) {
  if (std::isnan(scored.token.log_probability)) return "null";
  std::unordered_set<std::string> there;
  std::string out;
  const auto add = [&](const LikelyToken& token) {
    const std::string text = TextOf(token);
    if (!there.insert(text).second) return;
    out += StrCat(out.empty() ? "" : ",", Quoted(text), ":", NumberOf(token));
  };
  for (const LikelyToken& token : scored.likeliest) add(token);
  add(scored.token);
  return StrCat("{", out, "}");
}

std::string OfText(std::span<const ScoredToken> tokens, size_t& offset) {
  const auto next_offset = [&offset](const ScoredToken& scored) {
    const size_t begin = offset;
    offset += Characters(scored.token.bytes);
    return StrCat(begin);
  };
  const auto text = [](const ScoredToken& scored) { return Quoted(TextOf(scored.token)); };
  const auto number = [](const ScoredToken& scored) { return NumberOf(scored.token); };
  return StrCat("{\"tokens\":", List(tokens, text), ",\"token_logprobs\":", List(tokens, number),
                ",\"top_logprobs\":", List(tokens, ByText),
                ",\"text_offset\":", List(tokens, next_offset), "}");
}

std::string FieldsOf(const LikelyToken& token) {
  const auto byte = [](char one) { return StrCat(int{static_cast<unsigned char>(one)}); };
  return StrCat("\"token\":", Quoted(TextOf(token)), ",\"logprob\":", NumberOf(token),
                ",\"bytes\":", List(token.bytes, byte));
}

std::string OfConversation(std::span<const ScoredToken> tokens) {
  const auto alone = [](const LikelyToken& token) { return StrCat("{", FieldsOf(token), "}"); };
  const auto whole = [&](const ScoredToken& scored) {
    return StrCat("{", FieldsOf(scored.token), ",\"top_logprobs\":", List(scored.likeliest, alone),
                  "}");
  };
  return StrCat("{\"content\":", List(tokens, whole), ",\"refusal\":null}");
}

}  // namespace

std::string LogProbabilities(CompletionForm form, std::span<const ScoredToken> tokens,
                             size_t& offset) {
  return form == CompletionForm::kChat ? OfConversation(tokens) : OfText(tokens, offset);
}

}  // namespace onnxd
