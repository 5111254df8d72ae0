#include "server/documents/triton_metrics.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using Totals = ModelStatistics::Totals;

uint64_t Microseconds(const ModelStatistics::Duration& duration) {
  return duration.nanoseconds / 1000;
}

struct Metric {
  const char* name;
  const char* help;
  uint64_t (*value)(const Totals&);
};

// Triton's durations are sums over requests, in microseconds.
constexpr Metric kMetrics[] = {
    {"nv_inference_request_success", "Successful requests",
     [](const Totals& t) { return t.success.count; }},
    {"nv_inference_request_failure", "Failed requests",
     [](const Totals& t) { return t.failure.count; }},
    {"nv_inference_count", "Rows inferred", [](const Totals& t) { return t.inferences; }},
    {"nv_inference_exec_count", "Runs of the model", [](const Totals& t) { return t.executions; }},
    {"nv_inference_request_duration_us", "End-to-end time of requests",
     [](const Totals& t) { return Microseconds(t.success); }},
    {"nv_inference_queue_duration_us", "Time that requests waited",
     [](const Totals& t) { return Microseconds(t.queue); }},
    {"nv_inference_compute_input_duration_us", "Time of joining inputs",
     [](const Totals& t) { return Microseconds(t.requests.input); }},
    {"nv_inference_compute_infer_duration_us", "Time of the model",
     [](const Totals& t) { return Microseconds(t.requests.run); }},
    {"nv_inference_compute_output_duration_us", "Time of parting outputs",
     [](const Totals& t) { return Microseconds(t.requests.output); }},
};

std::string LabelText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string TritonMetrics(const std::vector<std::shared_ptr<const ModelVersion>>& versions) {
  std::vector<Totals> totals;
  for (const auto& version : versions) totals.push_back(version->metrics->statistics().totals());
  std::string out;
  for (const Metric& metric : kMetrics) {
    out += StrCat("# HELP ", metric.name, " ", metric.help, "\n# TYPE ", metric.name, " counter\n");
    for (size_t i = 0; i < versions.size(); ++i) {
      out += StrCat(metric.name, "{model=\"", LabelText(versions[i]->model), "\",version=\"",
                    LabelText(versions[i]->version), "\"} ", metric.value(totals[i]), "\n");
    }
  }
  return out;
}

}  // namespace onnxd
