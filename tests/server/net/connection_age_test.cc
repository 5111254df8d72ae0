#include "server/net/connection_age.h"

#include <gtest/gtest.h>

#include <set>

namespace onnxd {
namespace {

using Time = std::chrono::steady_clock::time_point;

TEST(ConnectionAge, HasNoEndWhereNoneIsSet) {
  EXPECT_EQ(EndOfAge(ServerOptions::Limits(), Time()), Time::max());
}

TEST(ConnectionAge, EndsWithinATenthOfWhatIsSetAndNotAllAtOnce) {
  ServerOptions::Limits limits;
  limits.connection_age_s = 100;
  std::set<Time> ends;
  for (int i = 0; i < 50; ++i) {
    const Time end = EndOfAge(limits, Time());
    EXPECT_GE(end, Time() + std::chrono::seconds(90));
    EXPECT_LE(end, Time() + std::chrono::seconds(110));
    ends.insert(end);
  }
  EXPECT_EQ(ends.size(), 50);
}

}  // namespace
}  // namespace onnxd
