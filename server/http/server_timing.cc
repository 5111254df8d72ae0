#include "server/http/server_timing.h"

#include <cstdio>

namespace onnxd {

void AddServerTiming(const InferenceResponse& result, HttpResponse& response) {
  const auto milliseconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  char text[96];
  std::snprintf(text, sizeof(text), "queue;dur=%.3f, compute;dur=%.3f",
                milliseconds(result.queue_time), milliseconds(result.compute_time));
  response.headers.emplace_back("Server-Timing", text);
}

}  // namespace onnxd
