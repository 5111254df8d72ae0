// ProcessMetrics: what Prometheus's client libraries tell of a process, and its allocator.
// Source: https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics
#pragma once

#include <prometheus/registry.h>

namespace onnxd {

// One thread at a time.
class ProcessMetrics {
 public:
  explicit ProcessMetrics(prometheus::Registry& registry);
  void Read();

 private:
  prometheus::Counter& cpu_;
  prometheus::Gauge& resident_;
  prometheus::Gauge& virtual_;
  prometheus::Gauge& descriptors_;
  prometheus::Gauge& most_descriptors_;
  prometheus::Gauge& threads_;
  prometheus::Gauge& started_;
  prometheus::Gauge& allocated_;
  prometheus::Gauge& free_;
};

}  // namespace onnxd
