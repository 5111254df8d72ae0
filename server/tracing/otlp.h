// Spans as OTLP/HTTP carries them in JSON.
// Source: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding and
// https://github.com/open-telemetry/opentelemetry-proto, trace/v1/trace.proto
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/tracing/span.h"

namespace onnxd {

// An ExportTraceServiceRequest. Phases become spans of kind INTERNAL under their own span, which is
// of kind SERVER. `resource`: attributes of this process, service.name and the like.
std::string OtlpJson(const std::vector<Span>& spans,
                     const std::map<std::string, std::string>& resource);

}  // namespace onnxd
