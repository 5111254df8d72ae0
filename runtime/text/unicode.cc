#include "runtime/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace onnxd {
namespace {

utf8proc_category_t Category(char32_t value) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(value));
}

bool IsBetween(utf8proc_category_t category, utf8proc_category_t first, utf8proc_category_t last) {
  return category >= first && category <= last;
}

int CombiningClass(char32_t value) {
  return value < 0x300
             ? 0
             : utf8proc_get_property(static_cast<utf8proc_int32_t>(value))->combining_class;
}

// The one character that the two are together; 0: they stay two.
char32_t Compose(char32_t first, char32_t second) {
  if (second < 0x300) return 0;
  std::array<utf8proc_int32_t, 3> pair = {static_cast<utf8proc_int32_t>(first),
                                          static_cast<utf8proc_int32_t>(second), 0};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  return utf8proc_normalize_utf32(pair.data(), 2, options) == 1 ? static_cast<char32_t>(pair[0])
                                                                : 0;
}

// Source: Unicode Standard Annex #15, section 1.3 (the canonical composition algorithm).
void ComposeAll(std::vector<char32_t>& characters, std::vector<TextSpan>& source) {
  constexpr size_t kNone = ~size_t{0};
  size_t kept = 0, starter = kNone;
  int last_class = 0;  // of what was kept after the starter; 0: nothing
  for (size_t i = 0; i < characters.size(); ++i) {
    const char32_t value = characters[i];
    const int combining = CombiningClass(value);
    const bool adjacent = starter != kNone && kept == starter + 1;
    if (starter != kNone && (adjacent || last_class < combining)) {
      if (const char32_t whole = Compose(characters[starter], value)) {
        characters[starter] = whole;
        source[starter].end = std::max(source[starter].end, source[i].end);
        continue;
      }
    }
    if (combining == 0) {
      starter = kept;
      last_class = 0;
    } else {
      last_class = combining;
    }
    characters[kept] = value;
    source[kept++] = source[i];
  }
  characters.resize(kept);
  source.resize(kept);
}

// Runs of combining characters, by their class.
void PutInOrder(std::vector<char32_t>& characters, std::vector<TextSpan>& source) {
  for (size_t begin = 0; begin < characters.size();) {
    if (CombiningClass(characters[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    while (end < characters.size() && CombiningClass(characters[end]) != 0) ++end;
    std::vector<size_t> order(end - begin);
    std::iota(order.begin(), order.end(), begin);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return CombiningClass(characters[a]) < CombiningClass(characters[b]);
    });
    std::vector<char32_t> sorted;
    std::vector<TextSpan> sorted_source;
    for (const size_t i : order) {
      sorted.push_back(characters[i]);
      sorted_source.push_back(source[i]);
    }
    std::copy(sorted.begin(), sorted.end(), characters.begin() + static_cast<ptrdiff_t>(begin));
    std::copy(sorted_source.begin(), sorted_source.end(),
              source.begin() + static_cast<ptrdiff_t>(begin));
    begin = end;
  }
}

template <char32_t (*change)(char32_t)>
std::string ChangeCase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto [value, bytes] = CodePointAt(text, at);
    if (value == kReplacementCharacter) {
      out.append(text, at, bytes);
    } else {
      AppendCodePoint(change(value), out);
    }
    at += bytes;
  }
  return out;
}

}  // namespace

CodePoint CodePointAt(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1};
  utf8proc_int32_t value = 0;
  const auto bytes = utf8proc_iterate(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
      static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size() - at, 4)), &value);
  if (bytes <= 0) return {kReplacementCharacter, 1};
  return {static_cast<char32_t>(value), static_cast<size_t>(bytes)};
}

void AppendCodePoint(char32_t value, std::string& out) {
  if (value < 0x80) {
    out += static_cast<char>(value);
    return;
  }
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count));
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

bool IsLetter(char32_t value) {
  return IsBetween(Category(value), UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}
bool IsMark(char32_t value) {
  return IsBetween(Category(value), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}
bool IsNumber(char32_t value) {
  return IsBetween(Category(value), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}
bool IsPunctuation(char32_t value) {
  return IsBetween(Category(value), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}
bool IsNonspacingMark(char32_t value) { return Category(value) == UTF8PROC_CATEGORY_MN; }
bool IsOther(char32_t value) {
  const auto category = Category(value);
  return category == UTF8PROC_CATEGORY_CN ||
         IsBetween(category, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO);
}
bool IsWhitespace(char32_t value) {
  if (value < 0x80) return value == ' ' || (value >= '\t' && value <= '\r');
  return value == 0x85 || IsBetween(Category(value), UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}
bool IsWordCharacter(char32_t value) {
  const auto category = Category(value);
  return IsBetween(category, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC || value == 0x200c || value == 0x200d;
}

char32_t Lower(char32_t value) {
  if (value < 0x80) return value >= 'A' && value <= 'Z' ? value + 32 : value;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(value)));
}
char32_t Upper(char32_t value) {
  if (value < 0x80) return value >= 'a' && value <= 'z' ? value - 32 : value;
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(value)));
}
std::string Lower(std::string_view text) { return ChangeCase<Lower>(text); }
std::string Upper(std::string_view text) { return ChangeCase<Upper>(text); }

void Normalize(NormalForm form, std::vector<char32_t>& characters, std::vector<TextSpan>& source) {
  if (std::all_of(characters.begin(), characters.end(), [](char32_t c) { return c < 0x80; }))
    return;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : UTF8PROC_STABLE));
  std::vector<char32_t> apart;
  std::vector<TextSpan> apart_source;
  apart.reserve(characters.size());
  apart_source.reserve(characters.size());
  for (size_t i = 0; i < characters.size(); ++i) {
    // The longest decomposition of Unicode has 18.
    std::array<utf8proc_int32_t, 32> parts = {static_cast<utf8proc_int32_t>(characters[i])};
    utf8proc_ssize_t count = 1;
    if (characters[i] >= 0x80) {
      int boundary = 0;
      count = utf8proc_decompose_char(parts[0], parts.data(), parts.size(), options, &boundary);
      if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
        parts[0] = static_cast<utf8proc_int32_t>(characters[i]);
        count = 1;
      }
    }
    for (utf8proc_ssize_t part = 0; part < count; ++part) {
      apart.push_back(static_cast<char32_t>(parts[static_cast<size_t>(part)]));
      apart_source.push_back(source[i]);
    }
  }
  PutInOrder(apart, apart_source);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) ComposeAll(apart, apart_source);
  characters = std::move(apart);
  source = std::move(apart_source);
}

}  // namespace onnxd
