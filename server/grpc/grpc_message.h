// A gRPC call and its answer as the API sees them: a path and serialized messages.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/status.h"

namespace onnxd {

struct GrpcCall {
  std::string path;     // "/package.Service/Method"
  std::string message;  // one serialized request
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();  // first byte
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::shared_ptr<std::atomic<bool>> cancelled;  // set when the client is gone
  std::string client;                            // its address
  std::string authorization, api_key;            // metadata of these names; may be empty
};

// A serialized response, or the status that ends the call. Called once, from any thread.
using GrpcRespond = std::function<void(Result<std::string>)>;
using GrpcHandler = std::function<void(GrpcCall, GrpcRespond)>;

}  // namespace onnxd
