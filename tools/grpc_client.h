// What the command line asks of a running server over gRPC.
#pragma once

#include <string>

#include "tools/http_client.h"

namespace onnxd {

// One unary call of "/package.Service/Method" with a serialized message; returns the answer's.
// kInvalidArgument for URLs other than a ServerAddress has, kUnavailable with the reason where
// nobody answers, kDeadlineExceeded, kResourceExhausted for an answer of more than 256 MB; else the
// call's own status.
Result<std::string> CallGrpc(const ServerAddress& server, const std::string& method,
                             const std::string& message);

}  // namespace onnxd
