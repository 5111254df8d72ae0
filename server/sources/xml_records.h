// What object stores list, of their XML.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

struct XmlRecords {
  // Texts of the elements inside each `record`, by name, whatever is between; of several the first.
  std::vector<std::map<std::string, std::string>> records;
  std::map<std::string, std::string> others;  // of those outside
};

// kInvalidArgument for what is no XML.
Result<XmlRecords> ReadXml(const std::string& text, const std::string& record);

}  // namespace onnxd
