// What templates can do with values: operators, filters, tests, methods, functions.
#pragma once

#include <string>
#include <string_view>

#include "server/templates/template_value.h"

namespace onnxd {

// + - * / // % ** ~ of two values; kInvalidArgument names their kinds.
TemplateResult Calculate(std::string_view sign, const TemplateValue& a, const TemplateValue& b,
                         TemplateBudget& budget);
// a in b.
Result<bool> IsWithin(const TemplateValue& a, const TemplateValue& b, TemplateBudget& budget);

// What `for` goes through: elements, names of a mapping, characters. kInvalidArgument.
Result<TemplateList> ElementsOf(const TemplateValue& value, TemplateBudget& budget);

// value.name: a method, else the entry of that name; value[name]: the entry, else the method.
// Undefined where there is neither; kInvalidArgument for one of nothing that is defined.
TemplateResult AttributeOf(const TemplateValue& value, const std::string& name);
TemplateResult ItemOf(const TemplateValue& value, const TemplateValue& place,
                      TemplateBudget& budget);
// value[begin:end:step]; none: left out.
TemplateResult SliceOf(const TemplateValue& value, const TemplateValue& begin,
                       const TemplateValue& end, const TemplateValue& step, TemplateBudget& budget);

bool HasFilter(std::string_view name);
TemplateResult ApplyFilter(const std::string& name, const TemplateValue& value,
                           const TemplateArguments& arguments);
bool HasTest(std::string_view name);
Result<bool> ApplyTest(const std::string& name, const TemplateValue& value,
                       const TemplateArguments& arguments);

// range, namespace, dict, raise_exception, strftime_now.
const TemplateDict& TemplateGlobals();

}  // namespace onnxd
