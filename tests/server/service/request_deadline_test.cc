#include "server/service/request_deadline.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

const steady_clock::time_point kArrived{std::chrono::hours(1)};

InferenceRequest Arrived() {
  InferenceRequest request;
  request.origin.arrived = kArrived;
  return request;
}

std::optional<steady_clock::time_point> At(milliseconds after) { return kArrived + after; }

TEST(RequestDeadline, IsNoneWhereNobodyNamedOne) {
  EXPECT_EQ(RequestDeadline(Arrived(), {}, kArrived), std::nullopt);
}

TEST(RequestDeadline, LeavesATwentiethForTheAnswersWay) {
  InferenceRequest request = Arrived();
  request.timeout = milliseconds(80);
  EXPECT_EQ(RequestDeadline(request, {}, kArrived + milliseconds(30)), At(milliseconds(76)));
}

TEST(RequestDeadline, LeavesNoMoreThan5Milliseconds) {
  InferenceRequest request = Arrived();
  request.timeout = milliseconds(2000);
  EXPECT_EQ(RequestDeadline(request, {}, kArrived), At(milliseconds(1995)));
}

TEST(RequestDeadline, IsTheEarlierOneOfTheCallAndTheParameter) {
  InferenceRequest request = Arrived();
  request.timeout = milliseconds(40);
  request.deadline = kArrived + milliseconds(80);
  EXPECT_EQ(RequestDeadline(request, {}, kArrived), At(milliseconds(38)));
  request.timeout = milliseconds(100);
  EXPECT_EQ(RequestDeadline(request, {}, kArrived), At(milliseconds(76)));
}

TEST(RequestDeadline, OfTheSettingsCountsFromWhenTheRequestWasAllThere) {
  BatchingOptions settings;
  settings.default_timeout_ms = 60;
  EXPECT_EQ(RequestDeadline(Arrived(), settings, kArrived + milliseconds(20)),
            At(milliseconds(76)));
}

TEST(RequestDeadline, IgnoresTheParameterWhereTheSettingsSaySo) {
  InferenceRequest request = Arrived();
  request.timeout = milliseconds(40);
  BatchingOptions settings;
  settings.allow_timeout_override = false;
  EXPECT_EQ(RequestDeadline(request, settings, kArrived), std::nullopt);
}

TEST(RequestDeadline, StaysInThePastWhenItWasOver) {
  InferenceRequest request = Arrived();
  request.deadline = kArrived - milliseconds(80);
  EXPECT_EQ(RequestDeadline(request, {}, kArrived), At(milliseconds(-80)));
}

}  // namespace
}  // namespace onnxd
