// The log settings of Triton's logging extension, on our log: levels are ordered, the sink is
// stderr.
// Source: https://github.com/triton-inference-server/server, docs/protocol/extension_logging.md
#pragma once

#include <map>
#include <string>
#include <variant>

#include "runtime/base/status.h"

namespace onnxd {

using LogSetting = std::variant<bool, int64_t, std::string>;
using LogSettings = std::map<std::string, LogSetting>;

// log_file (empty: stderr), log_info, log_warning, log_error, log_verbose_level (1: debug) and
// log_format (default: text; ISO8601, which is text, too; json).
LogSettings CurrentLogSettings();

// Until the configuration is read again. kInvalidArgument, and nothing changes: unknown names,
// wrong types, a log_file (files are not for clients to choose), a level that is off while a lesser
// one is on.
Status ApplyLogSettings(const LogSettings& changes);

}  // namespace onnxd
