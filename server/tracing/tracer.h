// Tracer: which requests belong to a trace, and which of them are recorded.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "server/tracing/span_exporter.h"

namespace onnxd {

// As Triton's trace extension has them.
// Source: https://github.com/triton-inference-server/server, docs/protocol/extension_trace.md
struct TraceSettings {
  bool on = true;      // trace_level TIMESTAMPS, else OFF
  int64_t rate = 1;    // trace_rate: one in so many requests that come without a trace begins one
  int64_t count = -1;  // trace_count: so many are recorded still; -1: any number
};

// What is left out stays.
struct TraceChanges {
  std::optional<bool> on = std::nullopt;
  std::optional<int64_t> rate = std::nullopt, count = std::nullopt;
};

// Any thread.
class Tracer {
 public:
  // Without an exporter nothing is recorded, but clients' traces are named in logs and answers.
  // `exporter` must outlive it.
  Tracer(const TraceSettings& settings, SpanExporter* exporter)
      : exporter_(exporter), first_(settings), general_{settings} {}

  // The trace of a request that came with these headers, or one that begins with it; none without
  // either an exporter or a client's trace.
  TraceContext Begin(std::string_view traceparent, std::string_view tracestate);
  // Whether a request that was answered is recorded, which counts. Clients' traces are as the
  // client says; those that began here as Begin said, or by its model's settings where it has its
  // own.
  bool Records(const TraceContext& trace, const std::string& model);
  void Record(Span span) { exporter_->Add(std::move(span)); }

  bool exports() const { return exporter_ != nullptr; }
  // Of a model; empty: the general ones.
  TraceSettings Settings(const std::string& model) const;
  // kFailedPrecondition without an exporter, kInvalidArgument for a rate below 1 or a count below
  // -1, kResourceExhausted with too many models.
  Status Change(const std::string& model, const TraceChanges& changes);
  // The general ones at the start.
  const TraceSettings& first_settings() const { return first_; }

 private:
  struct Counted {
    TraceSettings settings;
    int64_t requests = 0;  // that began a trace or might have
  };
  static bool IsNext(Counted& of);

  SpanExporter* const exporter_;
  const TraceSettings first_;
  mutable std::mutex mutex_;
  Counted general_;                          // guarded by mutex_
  std::map<std::string, Counted> by_model_;  // guarded by mutex_
};

}  // namespace onnxd
