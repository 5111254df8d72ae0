// Text that was changed and still knows, for each character, where it comes from.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/text/unicode.h"

namespace onnxd {

struct AlignedText {
  std::vector<char32_t> characters;
  std::vector<TextSpan> source;  // of each character, in characters of the text as it came
  // More characters than `most` are not appended by AppendText, which then turns `outgrown` true:
  // what replaces texts by longer ones, again and again, must not take all memory.
  size_t most = 0;
  bool outgrown = false;

  // It may become 16 times as long, and 4,096 characters more.
  static AlignedText From(std::string_view utf8);

  size_t size() const { return characters.size(); }
  void Append(char32_t value, TextSpan from) {
    characters.push_back(value);
    source.push_back(from);
  }
  void AppendText(std::string_view utf8, TextSpan from);
  // kResourceExhausted when it has outgrown its bound.
  Status CheckLength() const;
  AlignedText Emptied() const;  // with the same bound
  AlignedText Part(size_t begin, size_t end) const;
  void Prepend(std::string_view utf8);
  // Characters that are kept.
  void Filter(bool (*keep)(char32_t));
  void Normalize(NormalForm form) { onnxd::Normalize(form, characters, source); }
  void MakeLower();
};

// UTF-8 of characters [begin, end), and of each of its bytes the index of its character.
struct EncodedPart {
  std::string bytes;
  std::vector<uint32_t> character;

  void Assign(const AlignedText& text, size_t begin, size_t end);
};

}  // namespace onnxd
