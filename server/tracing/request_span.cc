#include "server/tracing/request_span.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kMostError = 256;

std::string NameOf(const RequestRecord& record) {
  return record.model.empty() ? "infer" : StrCat("infer ", record.model);
}

}  // namespace

Span SpanOf(const RequestRecord& record, const TraceContext& trace,
            std::chrono::nanoseconds written) {
  Span span;
  span.trace = trace;
  span.name = NameOf(record);
  span.end = std::chrono::system_clock::now();
  span.start = span.end - written - record.whole;
  const bool http = record.protocol == Protocol::kHttp;
  span.attributes = {{"onnxd.model.name", record.model},
                     {"onnxd.model.version", record.version},
                     {"onnxd.request.id", record.id},
                     {"client.address", record.client},
                     {"network.protocol.name", std::string(http ? "http" : "grpc")}};
  if (!http)
    span.attributes.emplace_back("rpc.grpc.status_code", static_cast<int64_t>(record.code));
  if (record.code != StatusCode::kOk) {
    span.attributes.emplace_back("error.type", std::string(StatusCodeName(record.code)));
    span.error =
        record.error.empty() ? StatusCodeName(record.code) : record.error.substr(0, kMostError);
  }
  Span::Time begin = span.start;
  const auto add = [&](const char* name, std::chrono::nanoseconds time) {
    if (time.count() > 0) span.phases.push_back({name, begin, begin + time});
    begin += time;
  };
  add("read", record.read);
  add("queue", record.queue);
  add("compute", record.compute);
  begin = span.end - written;
  add("write", written);
  return span;
}

}  // namespace onnxd
