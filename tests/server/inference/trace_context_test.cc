#include "server/inference/trace_context.h"

#include <gtest/gtest.h>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, ContinuesTheClientsTraceWithASpanOfItsOwn) {
  const auto trace = ContinueTrace(kParent, "vendor=1,other=2");
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(trace->parent_id, "b7ad6b7169203331");
  EXPECT_EQ(trace->span_id.size(), 16u);
  EXPECT_NE(trace->span_id, trace->parent_id);
  EXPECT_EQ(trace->state, "vendor=1,other=2");
  EXPECT_TRUE(trace->sampled);
  EXPECT_EQ(ReturnedTraceParent(*trace),
            "00-0af7651916cd43dd8448eb211c80319c-" + trace->span_id + "-01");
}

TEST(TraceContext, TakesTheLastBitOfTheFlagsAlone) {
  for (const auto& [flags, sampled] :
       std::map<std::string, bool>{{"00", false}, {"02", false}, {"03", true}, {"ff", true}}) {
    const auto trace = ContinueTrace(StrCat(std::string_view(kParent).substr(0, 53), flags), "");
    ASSERT_TRUE(trace.has_value()) << flags;
    EXPECT_EQ(trace->sampled, sampled) << flags;
  }
}

TEST(TraceContext, RefusesWhatIsNoTraceparent) {
  for (const char* text : {"", "00", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                           "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                           "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                           "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
                           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
                           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
                           "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                           "0x-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                           "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more"}) {
    EXPECT_FALSE(ContinueTrace(text, "a=b").has_value()) << text;
  }
}

TEST(TraceContext, ReadsWhatItKnowsOfLaterVersions) {
  std::string later = kParent;
  later[1] = '1';
  EXPECT_TRUE(ContinueTrace(later, "").has_value());
  EXPECT_TRUE(ContinueTrace(later + "-more", "").has_value());
}

TEST(TraceContext, DropsATracestateThatIsTooLongOrNotPrintable) {
  EXPECT_EQ(ContinueTrace(kParent, std::string(513, 'a'))->state, "");
  EXPECT_EQ(ContinueTrace(kParent, "a=\x01")->state, "");
}

TEST(TraceContext, BeginsTracesThatDiffer) {
  const TraceContext one = BeginTrace(true), other = BeginTrace(true);
  EXPECT_EQ(one.trace_id.size(), 32u);
  EXPECT_NE(one.trace_id, other.trace_id);
  EXPECT_EQ(one.parent_id, "");
}

TEST(TraceContext, ReturnsNoTraceThatNobodyAskedForAndNobodyKeeps) {
  EXPECT_EQ(ReturnedTraceParent(TraceContext()), "");
  EXPECT_EQ(ReturnedTraceParent(BeginTrace(false)), "");
  EXPECT_NE(ReturnedTraceParent(BeginTrace(true)), "");
}

}  // namespace
}  // namespace onnxd
