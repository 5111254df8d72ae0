// A load report as an answer carries it (ORCA, "Open Request Cost Aggregation").
// Source: https://github.com/grpc/proposal/blob/master/A51-custom-backend-metrics.md, and for the
// texts what Envoy and Triton read and write in these headers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/config/server_options.h"
#include "server/service/inference_service.h"

namespace onnxd {

enum class LoadReportFormat { kText, kJson, kBinary };

// What header endpoint-load-metrics-format asks for: text, json or bin, in letters of either case.
std::optional<LoadReportFormat> LoadReportFormatOf(std::string_view wanted);

// Header or trailer of an answer.
struct LoadReportHeader {
  std::string_view name;
  std::string value;
};
// endpoint-load-metrics: "TEXT name=value, ..." or "JSON {...}"; endpoint-load-metrics-bin: the
// message in Base64. Utilizations above 1 are told as they are.
LoadReportHeader HeaderOf(const LoadReport& report, LoadReportFormat format);

// What answers tell under configuration key server.load_report. Any thread.
class LoadReporter {
 public:
  LoadReporter(InferenceService& service, const ServerOptions::Listen& options)
      : service_(service), mode_(options.load_report) {}

  // For an answer whose request has that text in header endpoint-load-metrics-format; `usual`:
  // what it tells where it always does.
  std::optional<LoadReportHeader> For(std::string_view wanted, LoadReportFormat usual) const;

 private:
  InferenceService& service_;
  const std::string mode_;
};

}  // namespace onnxd
