// What a request's record looks like in a trace.
#pragma once

#include "server/metrics/request_log.h"
#include "server/tracing/span.h"

namespace onnxd {

// Of a request whose answer has just been written, which took `written`. Its phases: read, queue,
// compute and write, those that took place.
Span SpanOf(const RequestRecord& record, const TraceContext& trace,
            std::chrono::nanoseconds written);

}  // namespace onnxd
