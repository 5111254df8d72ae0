// The deadline that an HTTP client states.
#pragma once

#include "runtime/base/status.h"
#include "server/http/http_message.h"
#include "server/inference/inference_request.h"

namespace onnxd {

// Header X-Request-Timeout-Ms: milliseconds from its first byte, 1 to 3600000. Shortens a deadline
// that the body states. kInvalidArgument for other numbers and texts.
Status ApplyTimeout(const HttpRequest& http, InferenceRequest& request);

}  // namespace onnxd
