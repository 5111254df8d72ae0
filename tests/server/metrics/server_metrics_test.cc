#include "server/metrics/server_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using namespace std::chrono_literals;

size_t SeriesOf(const std::string& text, std::string_view label) {
  size_t count = 0;
  for (size_t at = text.find(label); at != std::string::npos; at = text.find(label, at + 1)) {
    ++count;
  }
  return count;
}

TEST(ServerMetrics, SeriesOfAVersionGoOnceNobodyHoldsIt) {
  ServerMetrics metrics(0s);
  auto held = metrics.ForModel("held", "1");
  metrics.ForModel("gone", "1")->ObserveRequest(Protocol::kGrpc, StatusCode::kNotFound, 1ms);
  const std::string text = metrics.Serialize();
  EXPECT_EQ(SeriesOf(text, "model=\"gone\""), 0u);
  EXPECT_GT(SeriesOf(text, "model=\"held\""), 50u);
  EXPECT_EQ(metrics.ForModel("held", "1"), held);
}

TEST(ServerMetrics, SeriesStayForTheNextScrapes) {
  ServerMetrics metrics;
  metrics.ForModel("gone", "1");
  metrics.Serialize();
  EXPECT_GT(SeriesOf(metrics.Serialize(), "model=\"gone\""), 50u);
}

TEST(ServerMetrics, VersionsBeyondALimitShareOneName) {
  ServerMetrics metrics;
  std::vector<std::shared_ptr<ModelMetrics>> all;
  for (int i = 0; i < 2100; ++i) all.push_back(metrics.ForModel("m", std::to_string(i)));
  EXPECT_EQ(all[2000], all[2099]);
  EXPECT_NE(all[1998], all[1999]);
  const std::string text = metrics.Serialize();
  EXPECT_EQ(SeriesOf(text, "onnxd_inflight_requests{"), 2001u);
  EXPECT_NE(text.find("onnxd_inflight_requests{model=\"other\",version=\"other\"} 0"),
            std::string::npos);
}

TEST(ServerMetrics, AVersionIsInOneState) {
  ServerMetrics metrics;
  metrics.SetModelStates({{"m", "1", 1}, {"m", "2", 0}});
  std::string text = metrics.Serialize();
  EXPECT_NE(text.find(R"(onnxd_model_state{model="m",state="ready",version="1"} 1)"), text.npos);
  EXPECT_NE(text.find(R"(onnxd_model_state{model="m",state="loading",version="2"} 1)"), text.npos);
  EXPECT_NE(text.find(R"(onnxd_model_state{model="m",state="ready",version="2"} 0)"), text.npos);
  metrics.SetModelStates({{"m", "2", 1}});
  text = metrics.Serialize();
  EXPECT_EQ(text.find(R"(onnxd_model_state{model="m",state="ready",version="1"})"), text.npos);
  EXPECT_NE(text.find(R"(onnxd_model_state{model="m",state="ready",version="2"} 1)"), text.npos);
}

TEST(ServerMetrics, AModelsDurationsMayHaveBucketsOfTheirOwn) {
  ServerMetrics metrics;
  const auto own = metrics.ForModel("own", "1", {500, 2500000});
  const auto usual = metrics.ForModel("usual", "1");
  for (const auto& model : {own, usual}) {
    model->ObserveRequest(Protocol::kGrpc, StatusCode::kOk, 2ms);
  }
  const std::string text = metrics.Serialize();
  const auto value = [&text](const std::string& model, const std::string& bound) {
    const std::string series = StrCat(R"(onnxd_request_duration_seconds_bucket{model=")", model,
                                      R"(",protocol="grpc",version="1",le=")", bound, R"("} )");
    const size_t at = text.find(series);
    return at == text.npos ? "" : text.substr(at + series.size(), 1);
  };
  EXPECT_EQ(value("own", "0.0005"), "0");
  EXPECT_EQ(value("own", "2.5"), "1");
  EXPECT_EQ(value("own", "0.005"), "");
  EXPECT_EQ(value("usual", "0.005"), "1");
  EXPECT_EQ(value("usual", "30"), "1");
}

TEST(ServerMetrics, LoadIsOfNow) {
  ServerMetrics metrics;
  const auto model = metrics.ForModel("m", "1");
  metrics.SetLoad({{model.get(), 7}}, 1.5);
  EXPECT_NE(metrics.Serialize().find("onnxd_queue_depth{model=\"m\",version=\"1\"} 7"),
            std::string::npos);
  metrics.SetLoad({}, 0.25);
  const std::string text = metrics.Serialize();
  EXPECT_NE(text.find("onnxd_queue_depth{model=\"m\",version=\"1\"} 0"), std::string::npos);
  EXPECT_NE(text.find("\nonnxd_saturation_ratio 0.25"), std::string::npos);
}

}  // namespace
}  // namespace onnxd
