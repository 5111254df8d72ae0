// The text files of models.state_dir: a line that names kind and format, lines of one kind, and
// how many they are. Their format counts up when an earlier onnxd would misread them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

struct StateFile {
  std::string_view name;  // in the folder
  std::string_view kind;  // of the first line: `onnxd KIND FORMAT`
  std::string_view unit;  // of the last: `3 UNIT`
  int format = 1;
};

// Makes the folder if it is not there. Written aside, then renamed: a reader sees the old lines or
// the new ones. kUnavailable when it cannot be written.
Status WriteStateFile(const std::string& folder, const StateFile& file,
                      const std::vector<std::string>& lines);

// Empty without a file, or a folder. kDataLoss when it is damaged; kFailedPrecondition when a newer
// onnxd wrote it in a format that this one does not know.
Result<std::vector<std::string>> ReadStateFile(const std::string& folder, const StateFile& file);

// What a reader says of lines that mean nothing.
Status DamagedStateFile(const std::string& folder, const StateFile& file);

}  // namespace onnxd
