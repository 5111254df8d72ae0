#include "server/documents/model_statistics_json.h"

#include "runtime/base/str_cat.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

std::string Json(std::string_view name, const ModelStatistics::Duration& duration) {
  return StrCat("\"", name, "\":{\"count\":", duration.count, ",\"ns\":", duration.nanoseconds,
                "}");
}

std::string Json(const ModelStatistics::Run& run) {
  return StrCat(Json("compute_input", run.input), ",", Json("compute_infer", run.run), ",",
                Json("compute_output", run.output));
}

void AppendVersion(std::string& out, const ModelVersion& version) {
  const ModelStatistics::Totals totals = version.metrics->statistics().totals();
  out += "{\"name\":";
  AppendJsonString(out, version.model);
  out += ",\"version\":";
  AppendJsonString(out, version.version);
  out += StrCat(",\"last_inference\":", totals.last_inference_ms,
                ",\"inference_count\":", totals.inferences,
                ",\"execution_count\":", totals.executions, ",\"inference_stats\":{",
                Json("success", totals.success), ",", Json("fail", totals.failure), ",",
                Json("queue", totals.queue), ",", Json(totals.requests), ",", Json("cache_hit", {}),
                ",", Json("cache_miss", {}), "},\"batch_stats\":[");
  bool first = true;
  for (const auto& [rows, run] : totals.batches) {
    out += StrCat(first ? "" : ",", "{\"batch_size\":", rows, ",", Json(run), "}");
    first = false;
  }
  out +=
      StrCat("],\"memory_usage\":[{\"type\":\"CPU\",\"id\":0,\"byte_size\":",
             version.memory == nullptr ? 0 : version.memory->bytes(), "}],\"response_stats\":{}}");
}

}  // namespace

std::string ModelStatisticsJson(const std::vector<std::shared_ptr<const ModelVersion>>& versions) {
  std::string out = "{\"model_stats\":[";
  for (size_t i = 0; i < versions.size(); ++i) {
    if (i > 0) out += ',';
    AppendVersion(out, *versions[i]);
  }
  return out + "]}";
}

}  // namespace onnxd
