// ParseTemplate: a template's text as what it does.
#pragma once

#include <string_view>

#include "server/templates/template.h"

namespace onnxd {

// Errors as of Template::Parse.
Result<TemplateBody> ParseTemplate(std::string_view text);

}  // namespace onnxd
