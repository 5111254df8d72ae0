// RequestOrigin: where a request comes from and since when; whatever its protocol and call.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "server/inference/trace_context.h"

namespace onnxd {

struct RequestOrigin {
  std::string id;      // X-Request-Id: the client's, or made up
  std::string client;  // its address
  // X-Route-Key, else the name of its API key: requests of one keep to one version of a model's
  // split. May be empty.
  std::string route_key;
  std::string api_key;  // its key's name; empty: it has none
  TraceContext trace;
  // Its first byte was there: what it states as a duration counts from here.
  std::chrono::steady_clock::time_point arrived{};
  // Its last byte was there.
  std::chrono::steady_clock::time_point received{};
  // Set by the frontend when its client is gone; may be null.
  std::shared_ptr<std::atomic<bool>> cancelled;
};

}  // namespace onnxd
