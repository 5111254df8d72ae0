// Expressions of templates.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/templates/template_lexer.h"
#include "server/templates/template_scope.h"

namespace onnxd {

using TemplateExpression = std::function<TemplateResult(TemplateScope&)>;

// Goes through a template's tokens.
class TemplateReader {
 public:
  explicit TemplateReader(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

  const TemplateToken& Peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  TemplateToken Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool IsSign(std::string_view sign, size_t ahead = 0) const {
    return Peek(ahead).kind == TemplateToken::Kind::kSign && Peek(ahead).text == sign;
  }
  bool IsName(std::string_view name, size_t ahead = 0) const {
    return Peek(ahead).kind == TemplateToken::Kind::kName && Peek(ahead).text == name;
  }
  bool TakeSign(std::string_view sign) { return IsSign(sign) && (Take(), true); }
  bool TakeName(std::string_view name) { return IsName(name) && (Take(), true); }
  Status Expect(std::string_view sign);
  Status ExpectEnd(TemplateToken::Kind kind);
  Result<std::string> ExpectName();
  // kInvalidArgument with the line.
  Status Fail(std::string_view what) const;

  // Levels of what is read within each other.
  class Level {
   public:
    explicit Level(TemplateReader& reader) : reader_(reader) { ++reader_.depth_; }
    ~Level() { --reader_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TemplateReader& reader_;
  };
  // kInvalidArgument beyond 64 of them.
  Status CheckDepth() const;

 private:
  std::vector<TemplateToken> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

// One expression, with its condition (a if b else c) unless there must be none.
Result<TemplateExpression> ParseExpression(TemplateReader& reader, bool with_condition = true);
// One, or several with commas between: a list.
Result<TemplateExpression> ParseTuple(TemplateReader& reader, bool with_condition = true);
// (a, b, name=c), the bracket not yet taken.
using TemplateCallArguments = std::function<Result<TemplateArguments>(TemplateScope&)>;
Result<TemplateCallArguments> ParseArguments(TemplateReader& reader);

}  // namespace onnxd
