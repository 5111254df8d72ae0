// GET /debug/requests: the slowest requests of late, and those that failed.
#pragma once

#include <string>

#include "server/metrics/request_log.h"

namespace onnxd {

// {"slowest": [...], "failed": [...]}, times in milliseconds.
std::string RequestLogJson(const RequestLog& log);

}  // namespace onnxd
