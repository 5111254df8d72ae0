// Collector: where spans go, as the configuration says.
#pragma once

#include <memory>
#include <string>

#include "server/config/server_options.h"
#include "server/tracing/span_exporter.h"
#include "tools/http_client.h"

namespace onnxd {

struct Collector {
  ServerAddress address;
  std::string path;  // /v1/traces, unless the endpoint has one
};

// kInvalidArgument for what is no http or https URL, for files that cannot be read, and for lines
// of the header file that are not "Name: value".
Result<Collector> CollectorOf(const ServerOptions::Tracing& options);

// Null without an endpoint. `metrics` must outlive it.
std::unique_ptr<SpanExporter> ExporterOf(const ServerOptions::Tracing& options,
                                         ServerMetrics& metrics);

}  // namespace onnxd
