// The tokens of a template.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

struct TemplateToken {
  enum class Kind {
    kText,
    kBeginStatement,
    kEndStatement,
    kBeginValue,
    kEndValue,
    kName,
    kString,
    kInteger,
    kReal,
    kSign,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;  // of a string without its quotes
  int line = 1;
};

// Ends with kEnd. Blanks around statements go as with trim_blocks and lstrip_blocks, and where
// {%- -%} and {{- -}} say so; comments go, too. kInvalidArgument names the line.
Result<std::vector<TemplateToken>> LexTemplate(std::string_view text);

}  // namespace onnxd
