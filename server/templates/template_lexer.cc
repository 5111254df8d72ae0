#include "server/templates/template_lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/base/str_cat.h"
#include "runtime/text/unicode.h"

namespace onnxd {
namespace {

using Kind = TemplateToken::Kind;

bool IsBlank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}
bool BeginsName(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

constexpr std::array<std::string_view, 24> kSigns = {"//", "**", "==", "!=", "<=", ">=", "{", "}",
                                                     "(",  ")",  "[",  "]",  "+",  "-",  "*", "/",
                                                     "%",  "~",  "|",  ".",  ",",  ":",  "=", "<"};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Result<std::vector<TemplateToken>> Run() {
    if (text_.ends_with("\n")) text_.remove_suffix(1);
    while (at_ < text_.size()) {
      const size_t begin = NextTag();
      AddText(begin);
      if (at_ == text_.size()) break;
      const char kind = text_[at_ + 1];
      if (kind == '#') {
        ONNXD_RETURN_IF_ERROR(SkipComment());
      } else if (kind == '%' && IsRaw()) {
        ONNXD_RETURN_IF_ERROR(ReadRaw());
      } else {
        ONNXD_RETURN_IF_ERROR(ReadTag(kind == '%'));
      }
    }
    Add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Status Fail(std::string_view what) const {
    return InvalidArgument(StrCat("line ", line_, ": ", what));
  }

  void Add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void Advance(size_t to) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  size_t NextTag() const {
    for (size_t at = at_; at + 1 < text_.size(); ++at) {
      const char next = text_[at + 1];
      if (text_[at] == '{' && (next == '{' || next == '%' || next == '#')) return at;
    }
    return text_.size();
  }

  // The text up to a tag, without the blanks that it takes with it.
  void AddText(size_t end) {
    std::string_view text = text_.substr(at_, end - at_);
    if (strips_next_) {
      while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
    } else if (trims_line_ && text.starts_with("\n")) {
      text.remove_prefix(1);
    } else if (trims_line_ && text.starts_with("\r\n")) {
      text.remove_prefix(2);
    }
    const bool at_line_begin = text.size() == end - at_ ? at_ == 0 : true;
    strips_next_ = trims_line_ = false;
    if (end < text_.size()) {
      const char kind = text_[end + 1];
      const char sign = end + 2 < text_.size() ? text_[end + 2] : ' ';
      if (sign == '-') {
        while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
      } else if (kind != '{' && sign != '+') {
        // Blanks alone before it in its line.
        size_t blanks = text.size();
        while (blanks > 0 && (text[blanks - 1] == ' ' || text[blanks - 1] == '\t')) --blanks;
        const bool begins = blanks == 0 ? at_line_begin : text[blanks - 1] == '\n';
        if (begins) text = text.substr(0, blanks);
      }
    }
    if (!text.empty()) Add(Kind::kText, std::string(text));
    Advance(end);
  }

  // Behind "-}}", "%}" and others: what becomes of the blanks that follow.
  void EndTag(size_t end, bool strips, bool is_line) {
    Advance(end);
    strips_next_ = strips;
    trims_line_ = is_line;
  }

  Status SkipComment() {
    const size_t end = text_.find("#}", at_ + 2);
    if (end == text_.npos) return Fail("a comment has no end");
    EndTag(end + 2, text_[end - 1] == '-' && end - 1 > at_ + 1, true);
    return Status::Ok();
  }

  bool IsRaw() const { return TagName(at_) == "raw"; }

  // Of {% name ... %}.
  std::string_view TagName(size_t at) const {
    at += 2;
    if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) ++at;
    while (at < text_.size() && IsBlank(text_[at])) ++at;
    size_t end = at;
    while (end < text_.size() && BeginsName(text_[end])) ++end;
    return text_.substr(at, end - at);
  }

  Status ReadRaw() {
    const size_t begin = text_.find("%}", at_);
    if (begin == text_.npos) return Fail("a statement has no end");
    Advance(begin + 2);
    for (size_t at = at_; (at = text_.find("{%", at)) != text_.npos; at += 2) {
      const size_t end = text_.find("%}", at);
      if (TagName(at) != "endraw" || end == text_.npos) continue;
      if (at > at_) Add(Kind::kText, std::string(text_.substr(at_, at - at_)));
      EndTag(end + 2, text_[end - 1] == '-', true);
      return Status::Ok();
    }
    return Fail("raw has no endraw");
  }

  Status ReadTag(bool is_statement) {
    Add(is_statement ? Kind::kBeginStatement : Kind::kBeginValue, "");
    Advance(at_ + 2);
    if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) Advance(at_ + 1);
    const std::string_view end = is_statement ? "%}" : "}}";
    std::string open;  // brackets, within which }} is no end
    for (;;) {
      while (at_ < text_.size() && IsBlank(text_[at_])) Advance(at_ + 1);
      if (at_ == text_.size()) return Fail("a statement or expression has no end");
      const std::string_view rest = text_.substr(at_);
      const bool strips = rest.front() == '-' && rest.substr(1).starts_with(end);
      const bool keeps = rest.front() == '+' && rest.substr(1).starts_with(end);
      if (open.empty() && (strips || keeps || rest.starts_with(end))) {
        Add(is_statement ? Kind::kEndStatement : Kind::kEndValue, "");
        EndTag(at_ + end.size() + (strips || keeps ? 1 : 0), strips, is_statement && !keeps);
        return Status::Ok();
      }
      ONNXD_RETURN_IF_ERROR(ReadToken(rest, open));
    }
  }

  Status ReadToken(std::string_view rest, std::string& open) {
    const char first = rest.front();
    if (BeginsName(first))
      return ReadWhile(Kind::kName, rest, [](char c) { return BeginsName(c) || IsDigit(c); });
    if (IsDigit(first)) return ReadNumber(rest);
    if (first == '\'' || first == '"') return ReadString(rest);
    std::string_view sign;
    for (const std::string_view one : kSigns) {
      if (sign.empty() && rest.starts_with(one)) sign = one;
    }
    if (sign.empty() && first == '>') sign = rest.substr(0, 1);
    if (sign.empty()) return Fail(StrCat("'", rest.substr(0, 1), "' has no meaning here"));
    if (sign == "(" || sign == "[" || sign == "{") open += sign;
    if (sign == ")" || sign == "]" || sign == "}") {
      if (open.empty()) return Fail(StrCat("'", sign, "' closes nothing"));
      open.pop_back();
    }
    Add(Kind::kSign, std::string(sign));
    Advance(at_ + sign.size());
    return Status::Ok();
  }

  template <typename Belongs>
  Status ReadWhile(Kind kind, std::string_view rest, Belongs belongs) {
    const auto end = std::find_if_not(rest.begin(), rest.end(), belongs);
    const auto length = static_cast<size_t>(end - rest.begin());
    Add(kind, std::string(rest.substr(0, length)));
    Advance(at_ + length);
    return Status::Ok();
  }

  Status ReadNumber(std::string_view rest) {
    size_t length = 0;
    const auto digits = [&] {
      while (length < rest.size() && (IsDigit(rest[length]) || rest[length] == '_')) ++length;
    };
    digits();
    bool real = false;
    if (length + 1 < rest.size() && rest[length] == '.' && IsDigit(rest[length + 1])) {
      real = true;
      ++length;
      digits();
    }
    if (length + 1 < rest.size() && (rest[length] == 'e' || rest[length] == 'E')) {
      size_t exponent = length + 1;
      if (rest[exponent] == '-' || rest[exponent] == '+') ++exponent;
      if (exponent < rest.size() && IsDigit(rest[exponent])) {
        real = true;
        length = exponent;
        digits();
      }
    }
    std::string text(rest.substr(0, length));
    std::erase(text, '_');
    Add(real ? Kind::kReal : Kind::kInteger, std::move(text));
    Advance(at_ + length);
    return Status::Ok();
  }

  Status ReadString(std::string_view rest) {
    std::string text;
    size_t at = 1;
    for (; at < rest.size() && rest[at] != rest[0]; ++at) {
      if (rest[at] != '\\' || at + 1 == rest.size()) {
        text += rest[at];
        continue;
      }
      ONNXD_ASSIGN_OR_RETURN(at, ReadEscape(rest, at + 1, text));
    }
    if (at == rest.size()) return Fail("a text has no end");
    Add(Kind::kString, std::move(text));
    Advance(at_ + at + 1);
    return Status::Ok();
  }

  // Of the letter at `at`; where its last character is.
  Result<size_t> ReadEscape(std::string_view rest, size_t at, std::string& text) const {
    const char letter = rest[at];
    constexpr std::string_view kLetters = "ntrbfv0", kMeanings("\n\t\r\b\f\v\0", 7);
    if (const size_t found = kLetters.find(letter); found != kLetters.npos) {
      text += kMeanings[found];
      return at;
    }
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (digits > 0) {
      if (at + digits >= rest.size()) return Fail("an escape has too few digits");
      char32_t value = 0;
      for (size_t i = 1; i <= digits; ++i) {
        const auto c = static_cast<unsigned char>(rest[at + i]);
        if (std::isxdigit(c) == 0) return Fail("an escape has a digit that is none");
        value = value * 16 +
                static_cast<char32_t>(std::isdigit(c) != 0 ? c - '0' : std::tolower(c) - 'a' + 10);
      }
      AppendCodePoint(value > 0x10ffff ? kReplacementCharacter : value, text);
      return at + digits;
    }
    if (letter == '\n') return at;
    if (letter != '\\' && letter != '\'' && letter != '"') text += '\\';
    text += letter;
    return at;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool strips_next_ = false, trims_line_ = false;
  std::vector<TemplateToken> tokens_;
};

}  // namespace

Result<std::vector<TemplateToken>> LexTemplate(std::string_view text) { return Lexer(text).Run(); }

}  // namespace onnxd
