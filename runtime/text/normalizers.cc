#include "runtime/text/normalizers.h"

#include <algorithm>

namespace onnxd {
namespace {

void CleanForBert(AlignedText& text) {
  text.Filter([](char32_t c) { return c != 0 && c != kReplacementCharacter && !IsControl(c); });
  for (char32_t& c : text.characters) {
    if (IsWhitespace(c)) c = ' ';
  }
}

void SpaceChineseCharacters(AlignedText& text) {
  if (std::none_of(text.characters.begin(), text.characters.end(), IsChineseCharacter)) return;
  AlignedText out = text.Emptied();
  for (size_t i = 0; i < text.size(); ++i) {
    const bool chinese = IsChineseCharacter(text.characters[i]);
    if (chinese) out.Append(' ', text.source[i]);
    out.Append(text.characters[i], text.source[i]);
    if (chinese) out.Append(' ', text.source[i]);
  }
  text = std::move(out);
}

void DropAccents(AlignedText& text) {
  text.Filter([](char32_t c) { return !IsNonspacingMark(c); });
}

bool IsDroppedByNmt(char32_t c) {
  return (c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f ||
         c == 0x8f || c == 0x9f;
}

bool IsBlankForNmt(char32_t c) {
  return c == 0x09 || c == 0x0a || c == 0x0c || c == 0x0d || c == 0x1680 ||
         (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff ||
         c == kReplacementCharacter;
}

}  // namespace

bool IsControl(char32_t value) {
  return value != '\t' && value != '\n' && value != '\r' && IsOther(value);
}

bool IsChineseCharacter(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

Normalizer BertNormalizer(BertNormalizerOptions options) {
  return [options](AlignedText& text) {
    if (options.clean_text) CleanForBert(text);
    if (options.handle_chinese_chars) SpaceChineseCharacters(text);
    if (options.strip_accents) {
      text.Normalize(NormalForm::kNfd);
      DropAccents(text);
    }
    if (options.lowercase) text.MakeLower();
  };
}

Normalizer Form(NormalForm form) {
  return [form](AlignedText& text) { text.Normalize(form); };
}
Normalizer Lowercase() {
  return [](AlignedText& text) { text.MakeLower(); };
}
Normalizer StripAccents() {
  return [](AlignedText& text) { text.Filter([](char32_t c) { return !IsMark(c); }); };
}

Normalizer StripEnds(bool left, bool right) {
  return [left, right](AlignedText& text) {
    size_t begin = 0, end = text.size();
    while (left && begin < end && IsWhitespace(text.characters[begin])) ++begin;
    while (right && end > begin && IsWhitespace(text.characters[end - 1])) --end;
    if (begin > 0 || end < text.size()) text = text.Part(begin, end);
  };
}

Normalizer PrependText(std::string prefix) {
  return [prefix](AlignedText& text) { text.Prepend(prefix); };
}

Normalizer ReplaceMatches(Matcher matcher, std::string to) {
  return [matcher = std::move(matcher), to = std::move(to)](AlignedText& text) {
    std::vector<Range> matches;
    matcher(text, {0, text.size()}, matches);
    AlignedText out = text.Emptied();
    size_t at = 0;
    for (const Range match : matches) {
      for (; at < match.begin; ++at) out.Append(text.characters[at], text.source[at]);
      out.AppendText(to, {text.source[match.begin].begin, text.source[match.end - 1].end});
      at = match.end;
    }
    for (; at < text.size(); ++at) out.Append(text.characters[at], text.source[at]);
    text = std::move(out);
  };
}

Normalizer Nmt() {
  return [](AlignedText& text) {
    text.Filter([](char32_t c) { return !IsDroppedByNmt(c); });
    for (char32_t& c : text.characters) {
      if (IsBlankForNmt(c)) c = ' ';
    }
  };
}

Normalizer InTurn(std::vector<Normalizer> steps) {
  return [steps = std::move(steps)](AlignedText& text) {
    for (const Normalizer& step : steps) step(text);
  };
}

}  // namespace onnxd
