#include "server/documents/load_report.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

LoadReport Some() {
  LoadReport report;
  report.cpu_utilization = 0.25;
  report.mem_utilization = 0.5;
  report.application_utilization = 1.5;
  report.rps_fractional = 12.5;
  report.queued_requests = 3;
  return report;
}

TEST(LoadReport, IsAskedForByName) {
  EXPECT_EQ(LoadReportFormatOf("text"), LoadReportFormat::kText);
  EXPECT_EQ(LoadReportFormatOf("JSON"), LoadReportFormat::kJson);
  EXPECT_EQ(LoadReportFormatOf("bin"), LoadReportFormat::kBinary);
  for (const char* other : {"", "texts", "tex", "xml", "TEXT,JSON"}) {
    EXPECT_EQ(LoadReportFormatOf(other), std::nullopt) << other;
  }
}

TEST(LoadReport, AsText) {
  const LoadReportHeader header = HeaderOf(Some(), LoadReportFormat::kText);
  EXPECT_EQ(header.name, "endpoint-load-metrics");
  EXPECT_EQ(header.value,
            "TEXT cpu_utilization=0.25, mem_utilization=0.5, application_utilization=1.5, "
            "rps_fractional=12.5, eps=0, named_metrics.queued_requests=3");
}

TEST(LoadReport, AsJson) {
  const LoadReportHeader header = HeaderOf(Some(), LoadReportFormat::kJson);
  EXPECT_EQ(header.name, "endpoint-load-metrics");
  EXPECT_EQ(header.value,
            "JSON {\"cpu_utilization\":0.25,\"mem_utilization\":0.5,\"rps_fractional\":12.5,"
            "\"eps\":0,\"named_metrics\":{\"queued_requests\":3},\"application_utilization\":1.5}");
}

TEST(LoadReport, AsMessage) {
  LoadReport report;
  report.cpu_utilization = 1;
  const LoadReportHeader header = HeaderOf(report, LoadReportFormat::kBinary);
  EXPECT_EQ(header.name, "endpoint-load-metrics-bin");
  // Field 1, 1.0; field 8, {"queued_requests": 0.0}.
  EXPECT_EQ(header.value, "CQAAAAAAAPA/QhoKD3F1ZXVlZF9yZXF1ZXN0cxEAAAAAAAAAAA==");
}

}  // namespace
}  // namespace onnxd
