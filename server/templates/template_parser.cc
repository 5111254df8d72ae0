#include "server/templates/template_parser.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/str_cat.h"
#include "server/templates/template_expression.h"
#include "server/templates/template_functions.h"
#include "server/templates/template_lexer.h"
#include "server/templates/template_scope.h"

namespace onnxd {
namespace {

using Body = TemplateBody;
using Flow = TemplateFlow;
using Kind = TemplateToken::Kind;
using Reader = TemplateReader;
using Scope = TemplateScope;
using Value = TemplateValue;

// Sets names, of several those of a list's elements.
Status Assign(Scope& scope, const std::vector<std::string>& names, const Value& value) {
  if (value.depth() > Value::kMostDepth) {
    return InvalidArgument(StrCat("'", names[0], "' is nested too deeply"));
  }
  if (names.size() == 1) {
    scope.Set(names[0], value);
    return Status::Ok();
  }
  if (value.list() == nullptr || value.list()->size() != names.size()) {
    return InvalidArgument(
        StrCat(value.KindName(), " of ", value.size(), " elements for ", names.size(), " names"));
  }
  for (size_t i = 0; i < names.size(); ++i) scope.Set(names[i], (*value.list())[i]);
  return Status::Ok();
}

// What `loop` is in a round.
Value LoopOf(const TemplateList& list, size_t round) {
  const auto index = static_cast<int64_t>(round), count = static_cast<int64_t>(list.size());
  TemplateDict loop;
  loop.Append("index", index + 1);
  loop.Append("index0", index);
  loop.Append("revindex", count - index);
  loop.Append("revindex0", count - index - 1);
  loop.Append("first", index == 0);
  loop.Append("last", index + 1 == count);
  loop.Append("length", count);
  loop.Append("previtem", index == 0 ? Value::MakeUndefined("previtem") : list[round - 1]);
  loop.Append("nextitem", index + 1 == count ? Value::MakeUndefined("nextitem") : list[round + 1]);
  return loop;
}

class Parser {
 public:
  explicit Parser(std::vector<TemplateToken> tokens) : reader_(std::move(tokens)) {}

  Result<Body> Run() {
    ONNXD_ASSIGN_OR_RETURN(Body body, ParseBody({}));
    if (reader_.Peek().kind == Kind::kEnd) return body;
    return reader_.Fail(StrCat("'", reader_.Peek(1).text, "' ends nothing"));
  }

 private:
  // Up to a statement of one of these names, which is not taken, or the end.
  Result<Body> ParseBody(std::vector<std::string_view> ends) {
    const Reader::Level level(reader_);
    ONNXD_RETURN_IF_ERROR(reader_.CheckDepth());
    std::vector<Body> parts;
    while (reader_.Peek().kind != Kind::kEnd) {
      const TemplateToken& token = reader_.Peek();
      if (token.kind == Kind::kBeginStatement) {
        const std::string& name = reader_.Peek(1).text;
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) break;
        if (name.starts_with("end") || name == "else" || name == "elif") break;
        ONNXD_ASSIGN_OR_RETURN(parts.emplace_back(), ParseStatement());
      } else if (token.kind == Kind::kBeginValue) {
        ONNXD_ASSIGN_OR_RETURN(parts.emplace_back(), ParseValue());
      } else {
        parts.push_back(
            [text = reader_.Take().text](Scope& scope, std::string& out) -> Result<Flow> {
              ONNXD_RETURN_IF_ERROR(scope.budget().Spend(text.size()));
              out += text;
              return Flow::kGoOn;
            });
      }
    }
    return Body([parts = std::move(parts)](Scope& scope, std::string& out) -> Result<Flow> {
      for (const Body& part : parts) {
        ONNXD_ASSIGN_OR_RETURN(const Flow flow, part(scope, out));
        if (flow != Flow::kGoOn) return flow;
      }
      return Flow::kGoOn;
    });
  }

  // Takes {% name %}.
  Status ExpectStatement(std::string_view name) {
    if (reader_.Peek().kind != Kind::kBeginStatement || !reader_.IsName(name, 1)) {
      return reader_.Fail(StrCat("'", name, "' is missing"));
    }
    reader_.Take();
    reader_.Take();
    return reader_.ExpectEnd(Kind::kEndStatement);
  }

  Result<Body> ParseValue() {
    reader_.Take();
    ONNXD_ASSIGN_OR_RETURN(const TemplateExpression value, ParseTuple(reader_));
    ONNXD_RETURN_IF_ERROR(reader_.ExpectEnd(Kind::kEndValue));
    return Body([value](Scope& scope, std::string& out) -> Result<Flow> {
      ONNXD_ASSIGN_OR_RETURN(const Value written, value(scope));
      const std::string text = written.Written();
      ONNXD_RETURN_IF_ERROR(scope.budget().Spend(text.size()));
      out += text;
      return Flow::kGoOn;
    });
  }

  Result<Body> ParseStatement() {
    reader_.Take();
    ONNXD_ASSIGN_OR_RETURN(const std::string name, reader_.ExpectName());
    if (name == "if") return ParseIf();
    if (name == "for") return ParseFor();
    if (name == "set") return ParseSet();
    if (name == "macro") return ParseMacro();
    if (name == "generation") return ParseGeneration();
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return reader_.Fail(StrCat("'", name, "' outside a loop"));
      ONNXD_RETURN_IF_ERROR(reader_.ExpectEnd(Kind::kEndStatement));
      const Flow flow = name == "break" ? Flow::kBreak : Flow::kContinue;
      return Body([flow](Scope&, std::string&) -> Result<Flow> { return flow; });
    }
    return Unimplemented(
        StrCat("line ", reader_.Peek().line, ": the statement '", name, "' is not there yet"));
  }

  Result<Body> ParseIf() {
    struct Branch {
      TemplateExpression condition;
      Body body;
    };
    std::vector<Branch> branches;
    Body otherwise = [](Scope&, std::string&) -> Result<Flow> { return Flow::kGoOn; };
    for (;;) {
      Branch branch;
      ONNXD_ASSIGN_OR_RETURN(branch.condition, ParseTuple(reader_));
      ONNXD_RETURN_IF_ERROR(reader_.ExpectEnd(Kind::kEndStatement));
      ONNXD_ASSIGN_OR_RETURN(branch.body, ParseBody({"elif", "else", "endif"}));
      branches.push_back(std::move(branch));
      if (!reader_.IsName("elif", 1)) break;
      reader_.Take();
      reader_.Take();
    }
    if (reader_.IsName("else", 1)) {
      ONNXD_RETURN_IF_ERROR(ExpectStatement("else"));
      ONNXD_ASSIGN_OR_RETURN(otherwise, ParseBody({"endif"}));
    }
    ONNXD_RETURN_IF_ERROR(ExpectStatement("endif"));
    return Body([branches, otherwise](Scope& scope, std::string& out) -> Result<Flow> {
      for (const Branch& branch : branches) {
        ONNXD_ASSIGN_OR_RETURN(const Value decides, branch.condition(scope));
        if (decides.IsTrue()) return branch.body(scope, out);
      }
      return otherwise(scope, out);
    });
  }

  Result<std::vector<std::string>> ParseNames() {
    std::vector<std::string> names;
    const bool in_brackets = reader_.TakeSign("(");
    do {
      ONNXD_ASSIGN_OR_RETURN(names.emplace_back(), reader_.ExpectName());
    } while (reader_.TakeSign(","));
    if (in_brackets) ONNXD_RETURN_IF_ERROR(reader_.Expect(")"));
    return names;
  }

  struct Loop {
    std::vector<std::string> names;
    TemplateExpression list;
    TemplateExpression filter;  // null: none
    Body body, otherwise;
  };

  Result<Body> ParseFor() {
    Loop loop;
    ONNXD_ASSIGN_OR_RETURN(loop.names, ParseNames());
    if (!reader_.TakeName("in")) return reader_.Fail("'in' is missing");
    ONNXD_ASSIGN_OR_RETURN(loop.list, ParseTuple(reader_, /*with_condition=*/false));
    if (reader_.TakeName("if")) {
      ONNXD_ASSIGN_OR_RETURN(loop.filter, ParseExpression(reader_));
    }
    if (reader_.IsName("recursive")) return Unimplemented("recursive loops are not there yet");
    ONNXD_RETURN_IF_ERROR(reader_.ExpectEnd(Kind::kEndStatement));
    ++loops_;
    ONNXD_ASSIGN_OR_RETURN(loop.body, ParseBody({"else", "endfor"}));
    --loops_;
    if (reader_.IsName("else", 1)) {
      ONNXD_RETURN_IF_ERROR(ExpectStatement("else"));
      ONNXD_ASSIGN_OR_RETURN(loop.otherwise, ParseBody({"endfor"}));
    }
    ONNXD_RETURN_IF_ERROR(ExpectStatement("endfor"));
    return Body([loop](Scope& scope, std::string& out) { return RunLoop(loop, scope, out); });
  }

  static Result<TemplateList> RoundsOf(const Loop& loop, Scope& scope) {
    ONNXD_ASSIGN_OR_RETURN(const Value value, loop.list(scope));
    ONNXD_ASSIGN_OR_RETURN(TemplateList all, ElementsOf(value, scope.budget()));
    if (loop.filter == nullptr) return all;
    TemplateList kept;
    for (const Value& one : all) {
      Scope round(scope.budget(), &scope);
      ONNXD_RETURN_IF_ERROR(Assign(round, loop.names, one));
      ONNXD_ASSIGN_OR_RETURN(const Value fits, loop.filter(round));
      if (fits.IsTrue()) kept.push_back(one);
    }
    return kept;
  }

  static Result<Flow> RunLoop(const Loop& loop, Scope& scope, std::string& out) {
    if (scope.depth() > Scope::kMostDepth) return InvalidArgument("it is nested too deeply");
    ONNXD_ASSIGN_OR_RETURN(const TemplateList rounds, RoundsOf(loop, scope));
    if (rounds.empty() && loop.otherwise != nullptr) return loop.otherwise(scope, out);
    for (size_t i = 0; i < rounds.size(); ++i) {
      ONNXD_RETURN_IF_ERROR(scope.budget().Spend());
      Scope round(scope.budget(), &scope);
      ONNXD_RETURN_IF_ERROR(Assign(round, loop.names, rounds[i]));
      round.Set("loop", LoopOf(rounds, i));
      ONNXD_ASSIGN_OR_RETURN(const Flow flow, loop.body(round, out));
      if (flow == Flow::kBreak) break;
    }
    return Flow::kGoOn;
  }

  Result<Body> ParseSet() {
    if (reader_.Peek().kind == Kind::kName && reader_.IsSign(".", 1)) return ParseSetInNamespace();
    ONNXD_ASSIGN_OR_RETURN(const std::vector<std::string> names, ParseNames());
    if (reader_.TakeSign("=")) {
      ONNXD_ASSIGN_OR_RETURN(const TemplateExpression value, ParseTuple(reader_));
      ONNXD_RETURN_IF_ERROR(reader_.ExpectEnd(Kind::kEndStatement));
      return Body([names, value](Scope& scope, std::string&) -> Result<Flow> {
        ONNXD_ASSIGN_OR_RETURN(const Value set, value(scope));
        ONNXD_RETURN_IF_ERROR(Assign(scope, names, set));
        return Flow::kGoOn;
      });
    }
    ONNXD_RETURN_IF_ERROR(reader_.ExpectEnd(Kind::kEndStatement));
    ONNXD_ASSIGN_OR_RETURN(const Body body, ParseBody({"endset"}));
    ONNXD_RETURN_IF_ERROR(ExpectStatement("endset"));
    return Body([names, body](Scope& scope, std::string&) -> Result<Flow> {
      std::string text;
      ONNXD_ASSIGN_OR_RETURN(const Flow flow, body(scope, text));
      ONNXD_RETURN_IF_ERROR(Assign(scope, names, std::move(text)));
      return flow;
    });
  }

  Result<Body> ParseSetInNamespace() {
    const std::string holder = reader_.Take().text;
    reader_.Take();
    ONNXD_ASSIGN_OR_RETURN(const std::string name, reader_.ExpectName());
    ONNXD_RETURN_IF_ERROR(reader_.Expect("="));
    ONNXD_ASSIGN_OR_RETURN(const TemplateExpression value, ParseTuple(reader_));
    ONNXD_RETURN_IF_ERROR(reader_.ExpectEnd(Kind::kEndStatement));
    return Body([holder, name, value](Scope& scope, std::string&) -> Result<Flow> {
      ONNXD_ASSIGN_OR_RETURN(const Value set, value(scope));
      const Value names = scope.Get(holder);
      if (names.names() == nullptr || set.depth() > Value::kMostDepth) {
        return InvalidArgument(StrCat(
            "'", holder, ".", name, "' cannot be set: ",
            names.names() == nullptr ? "it is of no namespace" : "the value is nested too deeply"));
      }
      names.names()->Set(name, set);
      return Flow::kGoOn;
    });
  }

  struct Parameter {
    std::string name;
    TemplateExpression otherwise;  // null: undefined
  };

  Result<Body> ParseMacro() {
    ONNXD_ASSIGN_OR_RETURN(const std::string name, reader_.ExpectName());
    ONNXD_RETURN_IF_ERROR(reader_.Expect("("));
    std::vector<Parameter> parameters;
    while (!reader_.TakeSign(")")) {
      Parameter parameter;
      ONNXD_ASSIGN_OR_RETURN(parameter.name, reader_.ExpectName());
      if (reader_.TakeSign("=")) {
        ONNXD_ASSIGN_OR_RETURN(parameter.otherwise, ParseExpression(reader_));
      }
      parameters.push_back(std::move(parameter));
      if (!reader_.IsSign(")")) ONNXD_RETURN_IF_ERROR(reader_.Expect(","));
    }
    ONNXD_RETURN_IF_ERROR(reader_.ExpectEnd(Kind::kEndStatement));
    const int loops = std::exchange(loops_, 0);
    ONNXD_ASSIGN_OR_RETURN(const Body body, ParseBody({"endmacro"}));
    loops_ = loops;
    ONNXD_RETURN_IF_ERROR(ExpectStatement("endmacro"));
    return Body([name, parameters, body](Scope& scope, std::string&) -> Result<Flow> {
      // It sees the template's own names, at each call as they are then, and may call itself.
      Scope* const globals = &scope.outermost();
      scope.Set(name, TemplateFunction([parameters, body,
                                        globals](const TemplateArguments& given) -> TemplateResult {
                  ONNXD_RETURN_IF_ERROR(globals->budget().EnterMacro());
                  auto written = CallMacro(parameters, body, *globals, given);
                  globals->budget().LeaveMacro();
                  return written;
                }));
      return Flow::kGoOn;
    });
  }

  static TemplateResult CallMacro(const std::vector<Parameter>& parameters, const Body& body,
                                  Scope& globals, const TemplateArguments& given) {
    Scope scope(globals.budget(), &globals);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      Value value = Value::MakeUndefined(parameter.name);
      if (const Value* const argument = given.Find(i, parameter.name)) {
        value = *argument;
      } else if (parameter.otherwise != nullptr) {
        ONNXD_ASSIGN_OR_RETURN(value, parameter.otherwise(scope));
      }
      ONNXD_RETURN_IF_ERROR(Assign(scope, {parameter.name}, value));
    }
    std::string text;
    ONNXD_RETURN_IF_ERROR(body(scope, text).status());
    return text;
  }

  // Marks what an assistant wrote, for training.
  Result<Body> ParseGeneration() {
    ONNXD_RETURN_IF_ERROR(reader_.ExpectEnd(Kind::kEndStatement));
    ONNXD_ASSIGN_OR_RETURN(Body body, ParseBody({"endgeneration"}));
    ONNXD_RETURN_IF_ERROR(ExpectStatement("endgeneration"));
    return body;
  }

  Reader reader_;
  int loops_ = 0;
};

}  // namespace

Result<TemplateBody> ParseTemplate(std::string_view text) {
  ONNXD_ASSIGN_OR_RETURN(std::vector<TemplateToken> tokens, LexTemplate(text));
  return Parser(std::move(tokens)).Run();
}

}  // namespace onnxd
