// Span: what a request did and when, as traces show it.
// Source: https://opentelemetry.io/docs/specs/otel/trace/api/#span
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/inference/trace_context.h"

namespace onnxd {

struct Span {
  using Time = std::chrono::system_clock::time_point;
  struct Phase {
    std::string name;
    Time start, end;
  };

  TraceContext trace;
  std::string name;
  Time start, end;
  std::vector<std::pair<std::string, std::variant<std::string, int64_t>>> attributes;
  std::string error;          // empty: success
  std::vector<Phase> phases;  // its children
};

}  // namespace onnxd
