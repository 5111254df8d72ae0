// The names of the models that were loaded by request, in a file of their own, so that a restart
// loads them again.
#pragma once

#include <set>
#include <string>

#include "runtime/base/status.h"

namespace onnxd {

// Of the folder; made if it is not there. Written aside, then renamed: a reader sees the old list
// or the new one. kUnavailable when it cannot be written.
Status WriteLoadedList(const std::string& folder, const std::set<std::string>& models);

// Empty without a file. Errors as ReadStateFile has them.
Result<std::set<std::string>> ReadLoadedList(const std::string& folder);

}  // namespace onnxd
