#include "server/templates/template.h"

#include <utility>

#include "runtime/base/str_cat.h"
#include "server/templates/template_functions.h"
#include "server/templates/template_parser.h"
#include "server/templates/template_scope.h"

namespace onnxd {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr int64_t kMostSteps = 5'000'000, kMostMadeBytes = 256 << 20;

}  // namespace

Result<std::shared_ptr<const Template>> Template::Parse(std::string_view text) {
  if (text.size() > kMostBytes) {
    return InvalidArgument(StrCat("a template of ", text.size(), " bytes"));
  }
  ONNXD_ASSIGN_OR_RETURN(TemplateBody body, ParseTemplate(text));
  return std::shared_ptr<const Template>(new Template(std::move(body)));
}

Result<std::string> Template::Render(const TemplateDict& variables) const {
  TemplateBudget budget(kMostSteps, kMostMadeBytes);
  TemplateScope globals(budget, nullptr);
  for (const auto* const names : {&TemplateGlobals(), &variables}) {
    for (const auto& [name, value] : names->entries()) globals.Set(name, value);
  }
  std::string out;
  ONNXD_RETURN_IF_ERROR(body_(globals, out).status());
  return out;
}

}  // namespace onnxd
