#include "server/documents/load_report.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>

#include "proto/orca_load_report.pb.h"
#include "runtime/base/str_cat.h"
#include "server/inference/base64.h"

namespace onnxd {
namespace {

constexpr const char* kQueued = "queued_requests";

xds::data::orca::v3::OrcaLoadReport MessageOf(const LoadReport& report) {
  xds::data::orca::v3::OrcaLoadReport message;
  message.set_cpu_utilization(report.cpu_utilization);
  message.set_mem_utilization(report.mem_utilization);
  message.set_rps_fractional(report.rps_fractional);
  message.set_eps(report.eps);
  message.set_application_utilization(report.application_utilization);
  (*message.mutable_named_metrics())[kQueued] = report.queued_requests;
  return message;
}

std::string TextOf(const LoadReport& report) {
  const std::pair<std::string_view, double> fields[] = {
      {"cpu_utilization=", report.cpu_utilization},
      {", mem_utilization=", report.mem_utilization},
      {", application_utilization=", report.application_utilization},
      {", rps_fractional=", report.rps_fractional},
      {", eps=", report.eps},
      {", named_metrics.queued_requests=", report.queued_requests}};
  std::string text;
  for (const auto& [name, value] : fields) {
    char number[32];
    const auto end = std::to_chars(number, number + sizeof(number), value).ptr;
    text.append(name).append(number, end);
  }
  return text;
}

std::string JsonOf(const LoadReport& report) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  (void)google::protobuf::util::MessageToJsonString(MessageOf(report), &json, options);
  return json;
}

bool Same(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

}  // namespace

std::optional<LoadReportFormat> LoadReportFormatOf(std::string_view wanted) {
  if (Same(wanted, "text")) return LoadReportFormat::kText;
  if (Same(wanted, "json")) return LoadReportFormat::kJson;
  if (Same(wanted, "bin")) return LoadReportFormat::kBinary;
  return std::nullopt;
}

LoadReportHeader HeaderOf(const LoadReport& report, LoadReportFormat format) {
  switch (format) {
    case LoadReportFormat::kText:
      return {"endpoint-load-metrics", StrCat("TEXT ", TextOf(report))};
    case LoadReportFormat::kJson:
      return {"endpoint-load-metrics", StrCat("JSON ", JsonOf(report))};
    case LoadReportFormat::kBinary:
      break;
  }
  return {"endpoint-load-metrics-bin", EncodeBase64(MessageOf(report).SerializeAsString())};
}

std::optional<LoadReportHeader> LoadReporter::For(std::string_view wanted,
                                                  LoadReportFormat usual) const {
  if (mode_ == "off") return std::nullopt;
  auto format = LoadReportFormatOf(wanted);
  if (!format && mode_ == "always") format = usual;
  if (!format) return std::nullopt;
  return HeaderOf(service_.Load(), *format);
}

}  // namespace onnxd
