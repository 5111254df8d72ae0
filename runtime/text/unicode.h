// What Unicode says of the characters of UTF-8 text. Source: the Unicode Character Database, in
// utf8proc. Any thread; nothing fails: a byte that is no UTF-8 is a character of its own, U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace onnxd {

inline constexpr char32_t kReplacementCharacter = 0xfffd;

struct CodePoint {
  char32_t value;
  size_t bytes;  // of the text, 1 to 4
};

// Requires at < text.size().
CodePoint CodePointAt(std::string_view text, size_t at);
void AppendCodePoint(char32_t value, std::string& out);
// Of UTF-8 text: bytes that do not go on a character.
size_t CountCharacters(std::string_view text);

bool IsLetter(char32_t value);       // categories L*
bool IsMark(char32_t value);         // M*
bool IsNumber(char32_t value);       // N*
bool IsPunctuation(char32_t value);  // P*
bool IsNonspacingMark(char32_t value);
// Cc, Cf, Cn, Co and Cs: what writes nothing.
bool IsOther(char32_t value);
bool IsWhitespace(char32_t value);  // property White_Space
// A letter, mark, digit, connector or joiner: \w of regular expressions (Unicode Technical Standard
// #18, but for symbols of letters).
bool IsWordCharacter(char32_t value);

char32_t Lower(char32_t value);
char32_t Upper(char32_t value);
// Bytes that are no UTF-8 stay as they are.
std::string Lower(std::string_view text);
std::string Upper(std::string_view text);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Characters [begin, end) of a text.
struct TextSpan {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const TextSpan&) const = default;
};

// Decomposed and put in order, then composed again where the form says so (Unicode Standard Annex
// #15). `source`: for each character those that it comes from.
void Normalize(NormalForm form, std::vector<char32_t>& characters, std::vector<TextSpan>& source);

}  // namespace onnxd
