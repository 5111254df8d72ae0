// Regular expressions of tokenizers, which Oniguruma reads over Unicode, for RE2.
#include <re2/re2.h>

#include <algorithm>
#include <memory>

#include "runtime/base/str_cat.h"
#include "runtime/text/pre_tokenizers.h"

namespace onnxd {
namespace {

constexpr std::string_view kSpaces =
    R"(\t\n\v\f\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWordCharacters = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d})";
constexpr std::string_view kDigits = R"(\p{Nd})";
constexpr std::string_view kLastSpaces = R"(\s+(?!\S)|\s+)";
constexpr const char* kLastSpacesName = "spaces";

// \s, \w, \d are of ASCII for RE2. Empty: the escape stays as it is.
std::string_view ClassOf(char letter) {
  switch (letter) {
    case 's':
    case 'S':
      return kSpaces;
    case 'w':
    case 'W':
      return kWordCharacters;
    case 'd':
    case 'D':
      return kDigits;
    default:
      return {};
  }
}

Result<std::string> Translate(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (!in_class && pattern.substr(i).starts_with(kLastSpaces) &&
        out.find(kLastSpacesName) == out.npos) {
      out += StrCat("(?P<", kLastSpacesName, ">[", kSpaces, "]+)");
      i += kLastSpaces.size() - 1;
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    if (c != '\\' || i + 1 == pattern.size()) {
      out += c;
      continue;
    }
    const char letter = pattern[++i];
    const std::string_view members = ClassOf(letter);
    const bool negated = letter >= 'A' && letter <= 'Z';
    if (letter == 'u' && pattern.size() - i > 4) {
      out += StrCat("\\x{", pattern.substr(i + 1, 4), "}");
      i += 4;
    } else if (members.empty()) {
      out += c;
      out += letter;
    } else if (in_class && negated) {
      return Unimplemented(StrCat("the expression '", pattern, "' has \\", letter, " within [ ]"));
    } else {
      out += in_class ? std::string(members) : StrCat(negated ? "[^" : "[", members, "]");
    }
  }
  return out;
}

class ExpressionMatcher {
 public:
  ExpressionMatcher(std::shared_ptr<const re2::RE2> expression)
      : expression_(std::move(expression)) {
    const auto& names = expression_->NamedCapturingGroups();
    const auto found = names.find(kLastSpacesName);
    if (found != names.end()) last_spaces_ = found->second;
  }

  void operator()(const AlignedText& text, Range range, std::vector<Range>& out) const {
    EncodedPart part;
    part.Assign(text, range.begin, range.end);
    const re2::StringPiece bytes(part.bytes);
    const auto character = [&](size_t byte) {
      return byte < part.character.size() ? size_t{part.character[byte]} : range.end;
    };
    std::vector<re2::StringPiece> groups(static_cast<size_t>(last_spaces_) + 1);
    for (size_t at = 0; at < bytes.size();) {
      if (!expression_->Match(bytes, at, bytes.size(), re2::RE2::UNANCHORED, groups.data(),
                              static_cast<int>(groups.size()))) {
        break;
      }
      const auto begin = static_cast<size_t>(groups[0].data() - bytes.data());
      Range match = {character(begin), character(begin + groups[0].size())};
      const bool spaces =
          last_spaces_ > 0 && groups.back().data() != nullptr && !groups.back().empty();
      if (spaces && match.end < range.end && match.end - match.begin > 1) --match.end;
      if (match.begin < match.end) out.push_back(match);
      // On behind the match, by a character at least.
      const auto behind = static_cast<uint32_t>(std::max(match.end, character(at) + 1));
      at = static_cast<size_t>(
          std::lower_bound(part.character.begin(), part.character.end(), behind) -
          part.character.begin());
    }
  }

 private:
  std::shared_ptr<const re2::RE2> expression_;
  int last_spaces_ = 0;  // the group of white space of which the last belongs to the word behind
};

}  // namespace

Result<Matcher> Expression(const std::string& pattern) {
  ONNXD_ASSIGN_OR_RETURN(const std::string translated, Translate(pattern));
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(8 << 20);
  auto expression = std::make_shared<const re2::RE2>(translated, options);
  if (!expression->ok()) {
    return Unimplemented(StrCat("the expression '", pattern, "': ", expression->error()));
  }
  return Matcher(ExpressionMatcher(std::move(expression)));
}

}  // namespace onnxd
