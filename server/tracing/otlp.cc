#include "server/tracing/otlp.h"

#include "runtime/base/str_cat.h"
#include "server/inference/json_writer.h"
#include "server/inference/random_id.h"

namespace onnxd {
namespace {

// Of the enumerations SpanKind and StatusCode.
constexpr int kInternal = 1, kServer = 2, kError = 2;

void AppendText(std::string& out, std::string_view name, std::string_view text) {
  out += StrCat("\"", name, "\":");
  AppendJsonString(out, text);
}

void AppendAttribute(std::string& out, std::string_view key, const std::string& text) {
  out += '{';
  AppendText(out, "key", key);
  out += ",\"value\":{";
  AppendText(out, "stringValue", text);
  out += "}}";
}

// 64-bit integers are strings there.
void AppendAttribute(std::string& out, std::string_view key, int64_t number) {
  out += '{';
  AppendText(out, "key", key);
  out += StrCat(",\"value\":{\"intValue\":\"", number, "\"}}");
}

int64_t Nanoseconds(Span::Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// All that spans of requests and of their phases have, without the closing brace.
void AppendSpan(std::string& out, const TraceContext& trace, std::string_view name, int kind,
                Span::Time start, Span::Time end) {
  out += StrCat("{\"traceId\":\"", trace.trace_id, "\",\"spanId\":\"", trace.span_id, "\",");
  if (!trace.parent_id.empty()) out += StrCat("\"parentSpanId\":\"", trace.parent_id, "\",");
  if (!trace.state.empty()) {
    AppendText(out, "traceState", trace.state);
    out += ',';
  }
  AppendText(out, "name", name);
  out += StrCat(",\"kind\":", kind, ",\"startTimeUnixNano\":\"", Nanoseconds(start),
                "\",\"endTimeUnixNano\":\"", Nanoseconds(end), "\"");
}

void AppendRequest(std::string& out, const Span& span) {
  AppendSpan(out, span.trace, span.name, kServer, span.start, span.end);
  out += ",\"attributes\":[";
  for (size_t i = 0; i < span.attributes.size(); ++i) {
    if (i > 0) out += ',';
    const auto& [key, value] = span.attributes[i];
    std::visit([&, &key = key](const auto& v) { AppendAttribute(out, key, v); }, value);
  }
  out += ']';
  if (!span.error.empty()) {
    out += ",\"status\":{";
    AppendText(out, "message", span.error);
    out += StrCat(",\"code\":", kError, "}");
  }
  out += '}';
}

void AppendPhases(std::string& out, const Span& span) {
  TraceContext child = span.trace;
  child.parent_id = span.trace.span_id;
  for (const Span::Phase& phase : span.phases) {
    child.span_id = RandomId();
    out += ',';
    AppendSpan(out, child, phase.name, kInternal, phase.start, phase.end);
    out += '}';
  }
}

}  // namespace

std::string OtlpJson(const std::vector<Span>& spans,
                     const std::map<std::string, std::string>& resource) {
  std::string out = "{\"resourceSpans\":[{\"resource\":{\"attributes\":[";
  bool first = true;
  for (const auto& [key, value] : resource) {
    if (!std::exchange(first, false)) out += ',';
    AppendAttribute(out, key, value);
  }
  out += "]},\"scopeSpans\":[{\"scope\":{\"name\":\"onnxd\"},\"spans\":[";
  for (size_t i = 0; i < spans.size(); ++i) {
    if (i > 0) out += ',';
    AppendRequest(out, spans[i]);
    AppendPhases(out, spans[i]);
  }
  return out + "]}]}]}";
}

}  // namespace onnxd
