#include "runtime/text/aligned_text.h"

#include "runtime/base/str_cat.h"

namespace onnxd {

AlignedText AlignedText::From(std::string_view utf8) {
  AlignedText out;
  out.characters.reserve(utf8.size());
  out.source.reserve(utf8.size());
  uint32_t index = 0;
  for (size_t at = 0; at < utf8.size(); ++index) {
    const auto [value, bytes] = CodePointAt(utf8, at);
    out.Append(value, {index, index + 1});
    at += bytes;
  }
  out.most = out.size() * 16 + 4096;
  return out;
}

Status AlignedText::CheckLength() const {
  if (!outgrown) return Status::Ok();
  return ResourceExhausted(StrCat("a text becomes longer than ", most, " characters"));
}

AlignedText AlignedText::Emptied() const {
  AlignedText empty;
  empty.most = most;
  empty.outgrown = outgrown;
  return empty;
}

void AlignedText::AppendText(std::string_view utf8, TextSpan from) {
  if (utf8.size() > most || size() > most - utf8.size()) {
    outgrown = true;
    return;
  }
  for (size_t at = 0; at < utf8.size();) {
    const auto [value, bytes] = CodePointAt(utf8, at);
    Append(value, from);
    at += bytes;
  }
}

AlignedText AlignedText::Part(size_t begin, size_t end) const {
  const auto from = static_cast<ptrdiff_t>(begin), to = static_cast<ptrdiff_t>(end);
  AlignedText part = Emptied();
  part.characters.assign(characters.begin() + from, characters.begin() + to);
  part.source.assign(source.begin() + from, source.begin() + to);
  return part;
}

void AlignedText::Prepend(std::string_view utf8) {
  if (characters.empty()) return;
  AlignedText out = Emptied();
  out.AppendText(utf8, source.front());
  out.characters.insert(out.characters.end(), characters.begin(), characters.end());
  out.source.insert(out.source.end(), source.begin(), source.end());
  *this = std::move(out);
}

void AlignedText::Filter(bool (*keep)(char32_t)) {
  size_t kept = 0;
  for (size_t i = 0; i < size(); ++i) {
    if (!keep(characters[i])) continue;
    characters[kept] = characters[i];
    source[kept++] = source[i];
  }
  characters.resize(kept);
  source.resize(kept);
}

void AlignedText::MakeLower() {
  // The one character whose lower case is two.
  constexpr char32_t kDottedCapitalI = 0x130, kDotAbove = 0x307;
  AlignedText out = Emptied();
  out.characters.reserve(size());
  out.source.reserve(size());
  for (size_t i = 0; i < size(); ++i) {
    const bool two = characters[i] == kDottedCapitalI;
    out.Append(two ? U'i' : Lower(characters[i]), source[i]);
    if (two) out.Append(kDotAbove, source[i]);
  }
  *this = std::move(out);
}

void EncodedPart::Assign(const AlignedText& text, size_t begin, size_t end) {
  bytes.clear();
  character.clear();
  bytes.reserve(end - begin);
  character.reserve(end - begin);
  for (size_t i = begin; i < end; ++i) {
    const char32_t value = text.characters[i];
    if (value < 0x80) {
      bytes += static_cast<char>(value);
      character.push_back(static_cast<uint32_t>(i));
    } else {
      AppendCodePoint(value, bytes);
      character.resize(bytes.size(), static_cast<uint32_t>(i));
    }
  }
}

}  // namespace onnxd
