// Template: texts with {{ expressions }} and {% statements %} in them, in the part of Jinja that
// chat templates use, with the meaning that Hugging Face's transformers give it:
//
//   statements   for (filtered, with else, break and continue), if, set (names, namespaces and
//                blocks), macro, generation, raw; a line's only statement leaves no line
//   expressions  Python's operators, conditions, subscripts and slices; texts, numbers, lists and
//                mappings; filters, tests and methods of texts and mappings
//                (server/templates/template_functions.h)
//   functions    range, namespace, dict, raise_exception, strftime_now
// Source: https://jinja.palletsprojects.com/templates and transformers' chat_template_utils
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "server/templates/template_value.h"

namespace onnxd {

class TemplateScope;
// What a statement leaves to do: go on, or leave the loop's round, or the loop.
enum class TemplateFlow { kGoOn, kContinue, kBreak };
using TemplateBody = std::function<Result<TemplateFlow>(TemplateScope&, std::string& out)>;

// Immutable; any thread.
class Template {
 public:
  // kInvalidArgument names the line; kUnimplemented what is not there, by its name. Templates of
  // more than 1 MB, and what is nested deeper than 64 levels, are refused.
  static Result<std::shared_ptr<const Template>> Parse(std::string_view text);

  // kInvalidArgument: what the template itself raises, or an expression that has no value;
  // kResourceExhausted beyond 5 million steps or 256 MB of texts.
  Result<std::string> Render(const TemplateDict& variables) const;

 private:
  explicit Template(TemplateBody body) : body_(std::move(body)) {}
  const TemplateBody body_;
};

}  // namespace onnxd
