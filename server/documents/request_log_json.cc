#include "server/documents/request_log_json.h"

#include "runtime/base/str_cat.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

void Append(std::string& out, const RequestRecord& record) {
  const auto text = [&](std::string_view name, std::string_view value) {
    out += StrCat(",\"", name, "\":");
    AppendJsonString(out, value);
  };
  const auto ended =
      std::chrono::duration_cast<std::chrono::milliseconds>(record.ended.time_since_epoch());
  out += StrCat("{\"ended_ms\":", ended.count());
  text("request_id", record.id);
  text("client", record.client);
  if (!record.trace_id.empty()) text("trace_id", record.trace_id);
  text("protocol", record.protocol == Protocol::kHttp ? "http" : "grpc");
  text("model", record.model);
  text("version", record.version);
  text("code", StatusCodeName(record.code));
  if (!record.error.empty()) text("error", record.error);
  out += StrCat(",\"whole_ms\":", Milliseconds(record.whole),
                ",\"read_ms\":", Milliseconds(record.read),
                ",\"queue_ms\":", Milliseconds(record.queue),
                ",\"compute_ms\":", Milliseconds(record.compute), "}");
}

std::string List(const std::vector<RequestRecord>& records) {
  std::string out = "[";
  for (const RequestRecord& record : records) {
    if (out.size() > 1) out += ',';
    Append(out, record);
  }
  return out + "]";
}

}  // namespace

std::string RequestLogJson(const RequestLog& log) {
  return StrCat("{\"slowest\":", List(log.Slowest()), ",\"failed\":", List(log.Failed()), "}");
}

}  // namespace onnxd
