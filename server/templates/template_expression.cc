#include "server/templates/template_expression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "runtime/base/str_cat.h"
#include "server/templates/template_functions.h"

namespace onnxd {
namespace {

using Expression = TemplateExpression;
using Kind = TemplateToken::Kind;
using Reader = TemplateReader;
using Scope = TemplateScope;
using Value = TemplateValue;

Expression Constant(Value value) {
  return [value = std::move(value)](Scope&) -> TemplateResult { return value; };
}

// What failed is said with its line.
Expression AtLine(int line, Expression expression) {
  return [line, expression = std::move(expression)](Scope& scope) -> TemplateResult {
    ONNXD_RETURN_IF_ERROR(scope.budget().Spend());
    auto value = expression(scope);
    if (value.ok() || value.status().message().starts_with("line ")) return value;
    return Status(value.status().code(), StrCat("line ", line, ": ", value.status().message()));
  };
}

Result<Expression> ParseUnary(Reader& reader, bool with_filters);

Result<Expression> ParsePrimary(Reader& reader) {
  const TemplateToken token = reader.Take();
  switch (token.kind) {
    case Kind::kString: {
      std::string text = token.text;
      while (reader.Peek().kind == Kind::kString) text += reader.Take().text;
      return Constant(std::move(text));
    }
    case Kind::kInteger:
    case Kind::kReal: {
      int64_t whole = 0;
      double real = 0;
      const char* const end = token.text.data() + token.text.size();
      const bool is_whole = token.kind == Kind::kInteger;
      const auto error = is_whole ? std::from_chars(token.text.data(), end, whole).ec
                                  : std::from_chars(token.text.data(), end, real).ec;
      if (error != std::errc()) return reader.Fail(StrCat("the number ", token.text));
      return Constant(is_whole ? Value(whole) : Value(real));
    }
    case Kind::kName: {
      const std::string& name = token.text;
      if (name == "true" || name == "True") return Constant(true);
      if (name == "false" || name == "False") return Constant(false);
      if (name == "none" || name == "None") return Constant(Value());
      return Expression([name](Scope& scope) -> TemplateResult { return scope.Get(name); });
    }
    default:
      break;
  }
  if (token.text == "(") {
    if (reader.TakeSign(")")) return Constant(TemplateList());
    ONNXD_ASSIGN_OR_RETURN(Expression within, ParseTuple(reader));
    ONNXD_RETURN_IF_ERROR(reader.Expect(")"));
    return within;
  }
  if (token.text == "[") {
    std::vector<Expression> parts;
    while (!reader.TakeSign("]")) {
      ONNXD_ASSIGN_OR_RETURN(parts.emplace_back(), ParseExpression(reader));
      if (!reader.IsSign("]")) ONNXD_RETURN_IF_ERROR(reader.Expect(","));
    }
    return Expression([parts](Scope& scope) -> TemplateResult {
      TemplateList list;
      for (const Expression& part : parts) {
        ONNXD_ASSIGN_OR_RETURN(list.emplace_back(), part(scope));
      }
      return list;
    });
  }
  if (token.text == "{") {
    std::vector<std::pair<Expression, Expression>> parts;
    while (!reader.TakeSign("}")) {
      ONNXD_ASSIGN_OR_RETURN(Expression name, ParseExpression(reader));
      ONNXD_RETURN_IF_ERROR(reader.Expect(":"));
      ONNXD_ASSIGN_OR_RETURN(Expression value, ParseExpression(reader));
      parts.emplace_back(std::move(name), std::move(value));
      if (!reader.IsSign("}")) ONNXD_RETURN_IF_ERROR(reader.Expect(","));
    }
    return Expression([parts](Scope& scope) -> TemplateResult {
      TemplateDict dict;
      for (const auto& [name, value] : parts) {
        ONNXD_ASSIGN_OR_RETURN(const Value key, name(scope));
        ONNXD_ASSIGN_OR_RETURN(Value entry, value(scope));
        dict.Set(key.Written(), std::move(entry));
      }
      return dict;
    });
  }
  return reader.Fail(StrCat("an expression is missing before '", token.text, "'"));
}

// [a], [a:b], [a:b:c], the bracket taken.
Result<Expression> ParseSubscript(Reader& reader, Expression holder) {
  std::array<Expression, 3> parts = {Constant(Value()), Constant(Value()), Constant(Value())};
  size_t colons = 0;
  while (!reader.TakeSign("]")) {
    if (reader.TakeSign(":")) {
      if (++colons == parts.size()) return reader.Fail("a slice has two colons at most");
      continue;
    }
    ONNXD_ASSIGN_OR_RETURN(parts[colons], ParseExpression(reader));
    if (!reader.IsSign("]") && !reader.IsSign(":")) return reader.Fail("']' is missing");
  }
  return Expression([holder = std::move(holder), parts, colons](Scope& scope) -> TemplateResult {
    ONNXD_ASSIGN_OR_RETURN(const Value value, holder(scope));
    ONNXD_ASSIGN_OR_RETURN(const Value begin, parts[0](scope));
    if (colons == 0) return ItemOf(value, begin, scope.budget());
    ONNXD_ASSIGN_OR_RETURN(const Value end, parts[1](scope));
    ONNXD_ASSIGN_OR_RETURN(const Value step, parts[2](scope));
    return SliceOf(value, begin, end, step, scope.budget());
  });
}

Result<Expression> ParseCall(Reader& reader, Expression callee) {
  ONNXD_ASSIGN_OR_RETURN(TemplateCallArguments arguments, ParseArguments(reader));
  return Expression([callee = std::move(callee),
                     arguments = std::move(arguments)](Scope& scope) -> TemplateResult {
    ONNXD_ASSIGN_OR_RETURN(const Value function, callee(scope));
    if (function.function() == nullptr) {
      return InvalidArgument(function.is_undefined()
                                 ? StrCat("'", function.undefined_name(), "' is undefined")
                                 : StrCat(function.KindName(), " cannot be called"));
    }
    ONNXD_ASSIGN_OR_RETURN(const TemplateArguments given, arguments(scope));
    return (*function.function())(given);
  });
}

Result<Expression> ParsePostfix(Reader& reader, Expression holder) {
  for (;;) {
    const int line = reader.Peek().line;
    if (reader.TakeSign(".")) {
      const TemplateToken name = reader.Take();
      if (name.kind == Kind::kInteger) {
        int64_t place = 0;
        (void)std::from_chars(name.text.data(), name.text.data() + name.text.size(), place);
        holder = [holder, place](Scope& scope) -> TemplateResult {
          ONNXD_ASSIGN_OR_RETURN(const Value value, holder(scope));
          return ItemOf(value, place, scope.budget());
        };
      } else if (name.kind == Kind::kName) {
        holder = [holder, name = name.text](Scope& scope) -> TemplateResult {
          ONNXD_ASSIGN_OR_RETURN(const Value value, holder(scope));
          return AttributeOf(value, name);
        };
      } else {
        return reader.Fail("a name is missing behind '.'");
      }
    } else if (reader.TakeSign("[")) {
      ONNXD_ASSIGN_OR_RETURN(holder, ParseSubscript(reader, std::move(holder)));
    } else if (reader.IsSign("(")) {
      ONNXD_ASSIGN_OR_RETURN(holder, ParseCall(reader, std::move(holder)));
    } else {
      return holder;
    }
    holder = AtLine(line, std::move(holder));
  }
}

Result<TemplateArguments> NoArguments(Scope& scope) {
  TemplateArguments none;
  none.budget = &scope.budget();
  return none;
}

Result<Expression> ParseFilter(Reader& reader, Expression subject) {
  ONNXD_ASSIGN_OR_RETURN(const std::string name, reader.ExpectName());
  if (!HasFilter(name)) {
    return Unimplemented(
        StrCat("line ", reader.Peek().line, ": the filter '", name, "' is not there yet"));
  }
  TemplateCallArguments arguments = NoArguments;
  if (reader.IsSign("(")) {
    ONNXD_ASSIGN_OR_RETURN(arguments, ParseArguments(reader));
  }
  return Expression([name, subject = std::move(subject),
                     arguments = std::move(arguments)](Scope& scope) -> TemplateResult {
    ONNXD_ASSIGN_OR_RETURN(const Value value, subject(scope));
    ONNXD_ASSIGN_OR_RETURN(const TemplateArguments given, arguments(scope));
    return ApplyFilter(name, value, given);
  });
}

// Whether a test may have an argument without brackets here, like `is divisibleby 3`.
bool BeginsArgument(const Reader& reader) {
  const TemplateToken& token = reader.Peek();
  if (token.kind == Kind::kString || token.kind == Kind::kInteger || token.kind == Kind::kReal) {
    return true;
  }
  if (token.kind == Kind::kSign) return token.text == "[" || token.text == "{";
  if (token.kind != Kind::kName) return false;
  constexpr std::array<std::string_view, 8> kOthers = {"and", "or", "not", "else",
                                                       "if",  "is", "in",  "recursive"};
  return std::find(kOthers.begin(), kOthers.end(), token.text) == kOthers.end();
}

Result<Expression> ParseTest(Reader& reader, Expression subject) {
  const bool negates = reader.TakeName("not");
  std::string name = reader.Take().text;
  if (!HasTest(name)) {
    return Unimplemented(
        StrCat("line ", reader.Peek().line, ": the test '", name, "' is not there yet"));
  }
  TemplateCallArguments arguments = NoArguments;
  if (reader.IsSign("(")) {
    ONNXD_ASSIGN_OR_RETURN(arguments, ParseArguments(reader));
  } else if (BeginsArgument(reader)) {
    ONNXD_ASSIGN_OR_RETURN(Expression argument, ParsePrimary(reader));
    ONNXD_ASSIGN_OR_RETURN(argument, ParsePostfix(reader, std::move(argument)));
    arguments = [argument](Scope& scope) -> Result<TemplateArguments> {
      TemplateArguments one;
      one.budget = &scope.budget();
      ONNXD_ASSIGN_OR_RETURN(one.positional.emplace_back(), argument(scope));
      return one;
    };
  }
  return Expression([name, negates, subject = std::move(subject),
                     arguments = std::move(arguments)](Scope& scope) -> TemplateResult {
    ONNXD_ASSIGN_OR_RETURN(const Value value, subject(scope));
    ONNXD_ASSIGN_OR_RETURN(const TemplateArguments given, arguments(scope));
    ONNXD_ASSIGN_OR_RETURN(const bool fits, ApplyTest(name, value, given));
    return fits != negates;
  });
}

Result<Expression> ParseFilters(Reader& reader, Expression subject) {
  for (;;) {
    const int line = reader.Peek().line;
    if (reader.TakeSign("|")) {
      ONNXD_ASSIGN_OR_RETURN(subject, ParseFilter(reader, std::move(subject)));
    } else if (reader.TakeName("is")) {
      ONNXD_ASSIGN_OR_RETURN(subject, ParseTest(reader, std::move(subject)));
    } else if (reader.IsSign("(")) {
      ONNXD_ASSIGN_OR_RETURN(subject, ParseCall(reader, std::move(subject)));
    } else {
      return subject;
    }
    subject = AtLine(line, std::move(subject));
  }
}

Result<Expression> ParseUnary(Reader& reader, bool with_filters) {
  const Reader::Level level(reader);
  ONNXD_RETURN_IF_ERROR(reader.CheckDepth());
  const int line = reader.Peek().line;
  Expression operand;
  if (reader.IsSign("-") || reader.IsSign("+")) {
    const bool negates = reader.Take().text == "-";
    ONNXD_ASSIGN_OR_RETURN(Expression positive, ParseUnary(reader, false));
    operand = AtLine(line, [negates, positive](Scope& scope) -> TemplateResult {
      ONNXD_ASSIGN_OR_RETURN(const Value value, positive(scope));
      return Calculate(negates ? "-" : "+", int64_t{0}, value, scope.budget());
    });
  } else {
    ONNXD_ASSIGN_OR_RETURN(Expression primary, ParsePrimary(reader));
    ONNXD_ASSIGN_OR_RETURN(operand, ParsePostfix(reader, std::move(primary)));
  }
  return with_filters ? ParseFilters(reader, std::move(operand)) : Result<Expression>(operand);
}

// Operators of one strength, from left to right; the strongest last.
constexpr std::array<std::array<std::string_view, 4>, 4> kOperators = {
    {{"+", "-", "", ""}, {"~", "", "", ""}, {"*", "/", "//", "%"}, {"**", "", "", ""}}};

Result<Expression> ParseCalculation(Reader& reader, size_t strength) {
  if (strength == kOperators.size()) return ParseUnary(reader, true);
  ONNXD_ASSIGN_OR_RETURN(Expression left, ParseCalculation(reader, strength + 1));
  for (;;) {
    const auto& signs = kOperators[strength];
    const TemplateToken& next = reader.Peek();
    const bool is_one = next.kind == Kind::kSign && !next.text.empty() &&
                        std::find(signs.begin(), signs.end(), next.text) != signs.end();
    if (!is_one) return left;
    const TemplateToken sign = reader.Take();
    ONNXD_ASSIGN_OR_RETURN(Expression right, ParseCalculation(reader, strength + 1));
    left = AtLine(sign.line, [left, right, sign = sign.text](Scope& scope) -> TemplateResult {
      ONNXD_ASSIGN_OR_RETURN(const Value a, left(scope));
      ONNXD_ASSIGN_OR_RETURN(const Value b, right(scope));
      return Calculate(sign, a, b, scope.budget());
    });
  }
}

Result<bool> Compare(std::string_view sign, const Value& a, const Value& b, Scope& scope) {
  ONNXD_RETURN_IF_ERROR(scope.budget().Spend(std::min(a.size(), b.size())));
  if (sign == "==") return AreEqual(a, b);
  if (sign == "!=") return !AreEqual(a, b);
  if (sign == "in") return IsWithin(a, b, scope.budget());
  if (sign == "<") return IsLess(a, b);
  if (sign == ">") return IsLess(b, a);
  ONNXD_ASSIGN_OR_RETURN(const bool less, sign == ">=" ? IsLess(a, b) : IsLess(b, a));
  return !less;
}

// a < b <= c: both hold.
Result<Expression> ParseComparison(Reader& reader) {
  ONNXD_ASSIGN_OR_RETURN(const Expression first, ParseCalculation(reader, 0));
  struct Step {
    std::string sign;
    bool negates;
    Expression other;
  };
  std::vector<Step> steps;
  const int line = reader.Peek().line;
  for (;;) {
    constexpr std::array<std::string_view, 6> kSigns = {"==", "!=", "<", "<=", ">", ">="};
    const bool negates = reader.IsName("not") && reader.IsName("in", 1);
    const bool compares =
        reader.Peek().kind == Kind::kSign &&
        std::find(kSigns.begin(), kSigns.end(), reader.Peek().text) != kSigns.end();
    if (!negates && !compares && !reader.IsName("in")) break;
    if (negates) reader.Take();
    std::string sign = reader.Take().text;
    ONNXD_ASSIGN_OR_RETURN(Expression other, ParseCalculation(reader, 0));
    steps.push_back({std::move(sign), negates, std::move(other)});
  }
  if (steps.empty()) return first;
  return AtLine(line, [first, steps](Scope& scope) -> TemplateResult {
    ONNXD_ASSIGN_OR_RETURN(Value left, first(scope));
    for (const Step& step : steps) {
      ONNXD_ASSIGN_OR_RETURN(Value right, step.other(scope));
      ONNXD_ASSIGN_OR_RETURN(const bool holds, Compare(step.sign, left, right, scope));
      if (holds == step.negates) return false;
      left = std::move(right);
    }
    return true;
  });
}

Result<Expression> ParseNot(Reader& reader) {
  const Reader::Level level(reader);
  ONNXD_RETURN_IF_ERROR(reader.CheckDepth());
  if (!reader.TakeName("not")) return ParseComparison(reader);
  ONNXD_ASSIGN_OR_RETURN(const Expression operand, ParseNot(reader));
  return Expression([operand](Scope& scope) -> TemplateResult {
    ONNXD_ASSIGN_OR_RETURN(const Value value, operand(scope));
    return !value.IsTrue();
  });
}

// `and` binds more than `or`; both give the operand that decides.
Result<Expression> ParseLogic(Reader& reader, bool is_or) {
  const auto parse = [&] { return is_or ? ParseLogic(reader, false) : ParseNot(reader); };
  ONNXD_ASSIGN_OR_RETURN(Expression left, parse());
  while (reader.TakeName(is_or ? "or" : "and")) {
    ONNXD_ASSIGN_OR_RETURN(Expression right, parse());
    left = [left, right, is_or](Scope& scope) -> TemplateResult {
      ONNXD_ASSIGN_OR_RETURN(Value value, left(scope));
      if (value.IsTrue() == is_or) return value;
      return right(scope);
    };
  }
  return left;
}

}  // namespace

Status TemplateReader::Fail(std::string_view what) const {
  return InvalidArgument(StrCat("line ", Peek().line, ": ", what));
}

Status TemplateReader::CheckDepth() const {
  return depth_ <= TemplateScope::kMostDepth ? Status::Ok() : Fail("it is nested too deeply");
}

Status TemplateReader::Expect(std::string_view sign) {
  return TakeSign(sign) ? Status::Ok() : Fail(StrCat("'", sign, "' is missing"));
}

Status TemplateReader::ExpectEnd(TemplateToken::Kind kind) {
  if (Peek().kind != kind) return Fail(StrCat("'", Peek().text, "' has no meaning here"));
  Take();
  return Status::Ok();
}

Result<std::string> TemplateReader::ExpectName() {
  if (Peek().kind != Kind::kName) return Fail("a name is missing");
  return Take().text;
}

Result<TemplateExpression> ParseExpression(TemplateReader& reader, bool with_condition) {
  const TemplateReader::Level level(reader);
  ONNXD_RETURN_IF_ERROR(reader.CheckDepth());
  ONNXD_ASSIGN_OR_RETURN(Expression value, ParseLogic(reader, true));
  while (with_condition && reader.TakeName("if")) {
    ONNXD_ASSIGN_OR_RETURN(const Expression condition, ParseLogic(reader, true));
    Expression otherwise = Constant(Value::MakeUndefined("a condition without else"));
    if (reader.TakeName("else")) {
      ONNXD_ASSIGN_OR_RETURN(otherwise, ParseExpression(reader));
    }
    value = [value, condition, otherwise](Scope& scope) -> TemplateResult {
      ONNXD_ASSIGN_OR_RETURN(const Value decides, condition(scope));
      return decides.IsTrue() ? value(scope) : otherwise(scope);
    };
  }
  return value;
}

Result<TemplateExpression> ParseTuple(TemplateReader& reader, bool with_condition) {
  std::vector<Expression> parts;
  ONNXD_ASSIGN_OR_RETURN(parts.emplace_back(), ParseExpression(reader, with_condition));
  bool is_list = false;
  while (reader.TakeSign(",")) {
    is_list = true;
    if (reader.IsSign(")") || reader.Peek().kind == Kind::kEndStatement) break;
    ONNXD_ASSIGN_OR_RETURN(parts.emplace_back(), ParseExpression(reader, with_condition));
  }
  if (!is_list) return parts[0];
  return Expression([parts](Scope& scope) -> TemplateResult {
    TemplateList list;
    for (const Expression& part : parts) {
      ONNXD_ASSIGN_OR_RETURN(list.emplace_back(), part(scope));
    }
    return list;
  });
}

Result<TemplateCallArguments> ParseArguments(TemplateReader& reader) {
  ONNXD_RETURN_IF_ERROR(reader.Expect("("));
  std::vector<std::pair<std::string, Expression>> parts;
  while (!reader.TakeSign(")")) {
    std::string name;
    if (reader.Peek().kind == Kind::kName && reader.IsSign("=", 1)) {
      name = reader.Take().text;
      reader.Take();
    }
    ONNXD_ASSIGN_OR_RETURN(Expression value, ParseExpression(reader));
    parts.emplace_back(std::move(name), std::move(value));
    if (!reader.IsSign(")")) ONNXD_RETURN_IF_ERROR(reader.Expect(","));
  }
  return TemplateCallArguments([parts](Scope& scope) -> Result<TemplateArguments> {
    TemplateArguments given;
    given.budget = &scope.budget();
    for (const auto& [name, expression] : parts) {
      ONNXD_ASSIGN_OR_RETURN(Value value, expression(scope));
      if (name.empty()) {
        given.positional.push_back(std::move(value));
      } else {
        given.named.Set(name, std::move(value));
      }
    }
    return given;
  });
}

}  // namespace onnxd
