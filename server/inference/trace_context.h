// TraceContext: a request's place in the distributed trace of its client.
// Source: https://www.w3.org/TR/trace-context-1/
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace onnxd {

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits; empty: the request belongs to no trace
  std::string parent_id;  // 16, the client's span; empty: the trace begins here
  std::string span_id;    // 16, of the request itself
  std::string state;      // tracestate, as the client sent it
  bool sampled = false;   // spans of this trace are kept
};

// The trace that the headers traceparent and tracestate name, with a span of its own; nullopt where
// traceparent is empty or malformed. A malformed or overlong tracestate is dropped.
std::optional<TraceContext> ContinueTrace(std::string_view traceparent,
                                          std::string_view tracestate);

// A new trace.
TraceContext BeginTrace(bool sampled);

// Another span under the same parent.
void RenewSpan(TraceContext& trace);

// The header traceparent of the answer, which names the request's span; empty where there is no
// trace or its client could do nothing with it, since it sent none and this one is not sampled.
std::string ReturnedTraceParent(const TraceContext& trace);

}  // namespace onnxd
