#include "runtime/providers/cpu/utf8.h"

#include <locale.h>
#include <wctype.h>

namespace onnxd {
namespace {

// A locale whose tables are Unicode's; the process's own locale is left alone.
locale_t UnicodeLocale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

// The code point at `at` and its length in bytes; length 0 when it is no UTF-8.
struct CodePoint {
  wint_t value;
  size_t length;
};

CodePoint Decode(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80           ? 1
                        : (lead >> 5) == 0x6  ? 2
                        : (lead >> 4) == 0xe  ? 3
                        : (lead >> 3) == 0x1e ? 4
                                              : 0;
  if (length == 0 || at + length > text.size()) return {0, 0};
  wint_t value = length == 1 ? lead : lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    value = (value << 6) | (byte(i) & 0x3fu);
  }
  return {value, length};
}

void Encode(wint_t value, std::string& out) {
  const auto put = [&](wint_t byte) { out += static_cast<char>(byte); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xc0 | value >> 6);
    put(0x80 | (value & 0x3f));
  } else if (value < 0x10000) {
    put(0xe0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3f));
    put(0x80 | (value & 0x3f));
  } else {
    put(0xf0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3f));
    put(0x80 | (value >> 6 & 0x3f));
    put(0x80 | (value & 0x3f));
  }
}

std::string Convert(const std::string& text, bool upper) {
  const locale_t locale = UnicodeLocale();
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = Decode(text, at);
    if (point.length == 0 || locale == nullptr) {
      out += text[at++];
      continue;
    }
    Encode(upper ? towupper_l(point.value, locale) : towlower_l(point.value, locale), out);
    at += point.length;
  }
  return out;
}

}  // namespace

std::string Utf8Lower(const std::string& text) { return Convert(text, false); }
std::string Utf8Upper(const std::string& text) { return Convert(text, true); }

}  // namespace onnxd
