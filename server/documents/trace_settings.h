// The settings of Triton's trace extension, on our tracer: spans go to an OTLP collector, and only
// the configuration says to which.
// Source: https://github.com/triton-inference-server/server, docs/protocol/extension_trace.md
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "server/tracing/tracer.h"

namespace onnxd {

// By name; of trace_level several values are possible, of all others one.
using TraceSettingValues = std::map<std::string, std::vector<std::string>>;
using TraceSettingChanges = std::map<std::string, std::optional<std::vector<std::string>>>;

// trace_level (OFF or TIMESTAMPS), trace_rate, trace_count, trace_mode (opentelemetry),
// log_frequency (0) and trace_file (empty), of a model or, where that is empty, of the server.
TraceSettingValues CurrentTraceSettings(const Tracer& tracer, const std::string& model);

// Until the server stops. Without a value, or an empty one: as it is for the server, or was at the
// start. kInvalidArgument, and nothing changes: unknown names, malformed values, trace_level
// TENSORS, any other trace_file, trace_mode or log_frequency; kFailedPrecondition: as
// Tracer::Change.
Status ApplyTraceSettings(Tracer& tracer, const std::string& model,
                          const TraceSettingChanges& changes);

// As REST has them: trace_level is a list, the others are strings.
std::string TraceSettingsJson(const TraceSettingValues& settings);

}  // namespace onnxd
