// Attention of few queries, whose keys are split among groups: the results of the CPU.
#include "runtime/providers/gpu/split_attention.h"

#include <gtest/gtest.h>

#include "runtime/device/opencl/opencl_device.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "runtime/tensor/convert.h"
#include "runtime/tensor/device_tensor.h"
#include "tests/support/attention_testing.h"
#include "tests/support/device_testing.h"

namespace onnxd {
namespace {

class SplitAttention : public testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    auto device = FindOpenClDevice({});
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = *device;
  }

  double Tolerance() const { return AttentionTolerance(GetParam()); }

  // Attention of ONNX, operator set 24, with a mask of `mask` where it has dimensions.
  void ExpectSame(const Heads& h, const Attributes& attributes = {}, const Shape& mask = {}) {
    SCOPED_TRACE(StrCat(h.queries, " queries, ", h.keys, " keys, ", h.width, " wide"));
    CastModel m = AttentionOf(GetParam(), 24, h, attributes, mask);
    ExpectSameAsCpu(m.Answer("y"), m.inputs(), MakeGpuProvider("opencl", device_), Tolerance());
  }

  // What a plan's program makes of waves.
  Tensor RunPlan(const AttentionText& text, const FlashSizes& sizes,
                 const SplitAttentionPlan& plan) {
    const auto run = [&](GpuStream& stream, const AttentionPointers& pointers) -> Status {
      ONNXD_ASSIGN_OR_RETURN(
          const FlashAttention attention,
          MakeSplitAttention(*device_, SplitAttentionSource(text, sizes, plan), sizes, plan));
      ThreadPool pool(1);
      return attention.run(KernelContext({}, {}, nullptr, nullptr, &pool, &stream), pointers,
                           [](LaunchArguments&) {});
    };
    return AttentionOfWaves(*device_, text.type, sizes, plan.scratch_bytes, run);
  }

  int Programs(std::string_view entry) const {
    int count = 0;
    for (const std::string& source : device_->sources()) {
      count += source.find(StrCat("KERNEL ", entry)) != std::string::npos ? 1 : 0;
    }
    return count;
  }

  std::shared_ptr<GpuDevice> device_;
};

Attributes Of(const std::string& name, Attribute value) {
  Attributes attributes;
  attributes.Set(name, std::move(value));
  return attributes;
}

TEST_P(SplitAttention, OfAnyNumberOfKeys) {
  for (const int64_t queries : {1, 2, 4}) {
    for (const int64_t keys : {1, 32, 65, 257, 700}) ExpectSame({queries, keys, 32, 32});
  }
  EXPECT_GT(Programs("split_attention"), 0);
}

TEST_P(SplitAttention, OfHeadsOfAnyWidth) {
  for (const int64_t width : {1, 20, 64, 80, 256}) {
    ExpectSame({1, 150, width, width});
    ExpectSame({1, 150, width, 48});
  }
  EXPECT_GT(Programs("split_attention"), 4);
}

TEST_P(SplitAttention, HidesWhatComesLaterAndWhatAMaskHides) {
  ExpectSame({3, 150, 32, 32}, Of("is_causal", int64_t{1}));
  ExpectSame({2, 150, 32, 32}, {}, {2, 150});
  ExpectSame({2, 150, 32, 32}, {}, {1, 2, 2, 150});
  ExpectSame({2, 150, 32, 32}, Of("softcap", 2.0f));
}

TEST_P(SplitAttention, SharesKeysAmongHeadsOfABatch) {
  ExpectSame({1, 300, 32, 32, 3, 6, 2});
  ExpectSame({4, 40, 32, 32, 2, 6, 2}, Of("is_causal", int64_t{1}));
}

// Whole parts, and all, may have no key that the mask leaves.
TEST_P(SplitAttention, GivesZerosWhereAllIsHidden) {
  constexpr int64_t kKeys = 300;
  CastModel m(GetParam(), 24);
  const std::vector<std::string> inputs{m.Input({1, 2, 2, 32}), m.Input({1, 2, kKeys, 32}),
                                        m.Input({1, 2, kKeys, 32}), "mask"};
  Tensor mask = *Tensor::Create(DataType::kBool, {2, kKeys});
  std::fill_n(mask.mutable_data<bool>(), 2 * kKeys, false);
  for (int64_t key = 100; key < 120; ++key) mask.mutable_data<bool>()[kKeys + key] = true;
  m.model().Constant("mask", mask).Node("Attention", inputs, {"y"});
  const TestModel& model = m.Answer("y");
  ExpectSameAsCpu(model, m.inputs(), MakeGpuProvider("opencl", device_), Tolerance());
  const auto outputs = RunOnDevice(model, m.inputs(), MakeGpuProvider("opencl", device_));
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_EQ(ElementAt((*outputs)[0].tensor(), 0), 0.0);
  EXPECT_NE(ElementAt((*outputs)[0].tensor(), 32), 0.0);
}

TEST_P(SplitAttention, EveryPlanComputesTheSame) {
  FlashSizes sizes{};
  sizes.batch = {3};
  sizes.queries = 2, sizes.keys = 333, sizes.head = sizes.value_head = 64, sizes.scale = 0.125f;
  sizes.q = sizes.y = {{2 * 64}, 64};
  sizes.k = sizes.v = {{333 * 64}, 64};
  AttentionText text;
  text.type = GetParam();
  const auto plans = SplitAttentionPlans(sizes, 1);
  ASSERT_EQ(plans.size(), 4u);
  const Tensor first = RunPlan(text, sizes, plans[0]);
  EXPECT_NE(ElementAt(first, 0), ElementAt(first, 1));
  for (const SplitAttentionPlan& plan : plans) {
    SCOPED_TRACE(plan.most);
    EXPECT_GT(plan.parts, 1);
    const Tensor other = RunPlan(text, sizes, plan);
    for (int64_t i = 0; i < other.ElementCount(); ++i) {
      ASSERT_NEAR(ElementAt(other, i), ElementAt(first, i), Tolerance()) << "element " << i;
    }
  }
}

// The same question for every length up to the next power of two, as for a cache that grows.
TEST_P(SplitAttention, IsNotSearchedForAgainWhenTheCacheGrows) {
  device_ = *FindOpenClDevice({.searches_tactics = true});
  ExpectSame({1, 130, 24, 24});
  const auto known = Programs("split_attention");
  EXPECT_GT(known, 1);
  for (const int64_t keys : {131, 132, 200}) ExpectSame({1, keys, 24, 24});
  EXPECT_EQ(Programs("split_attention"), known);
}

// Each batch is a question of its own, whose ways are prepared on several threads.
TEST_P(SplitAttention, IsSearchedForOnSeveralThreads) {
  device_ = *FindOpenClDevice({.searches_tactics = true});
  for (int64_t batch = 1; batch <= 12; ++batch) ExpectSame({1, 130, 24, 24, batch});
  EXPECT_GT(Programs("split_attention"), 1);
}

TEST(SplitAttentionPlans, HaveEnoughGroupsForADeviceWhereKeysAllowIt) {
  FlashSizes sizes{};
  sizes.queries = 1, sizes.keys = 513, sizes.head = sizes.value_head = 64;
  sizes.batch = {64, 12};
  EXPECT_EQ(SplitAttentionPlans(sizes, 132)[0].most, 256);
  sizes.batch = {1, 12};
  const SplitAttentionPlan plan = SplitAttentionPlans(sizes, 132)[0];
  EXPECT_EQ(plan.most, 32);
  EXPECT_EQ(plan.parts, 17);
  EXPECT_EQ(plan.keys, 31);
  EXPECT_EQ(plan.groups, 12);
  EXPECT_EQ(plan.scratch_bytes, 12u * 17 * 66 * 4);
}

TEST(SplitAttentionPlans, HaveOnePartForFewKeysAndNoMorePartsThanCanBeJoined) {
  FlashSizes sizes{};
  sizes.queries = 1, sizes.keys = 30, sizes.head = sizes.value_head = 64;
  sizes.batch = {1, 12};
  const auto few = SplitAttentionPlans(sizes, 132);
  ASSERT_EQ(few.size(), 1u);
  EXPECT_EQ(few[0].parts, 1);
  EXPECT_EQ(few[0].scratch_bytes, 0u);
  sizes.batch = {1};
  sizes.keys = 256 * 65535;
  EXPECT_EQ(SplitAttentionPlans(sizes, 132)[0].parts, 65535);
  sizes.keys = 256 * 65536;
  EXPECT_TRUE(SplitAttentionPlans(sizes, 132).empty());
  sizes.keys = int64_t{1} << 40;
  EXPECT_TRUE(SplitAttentionPlans(sizes, 132).empty());
}

TEST(SplitAttentionPlans, AreForFewQueriesAndHeadsOfALaneForEachColumn) {
  FlashSizes sizes{};
  sizes.queries = 4, sizes.keys = 30, sizes.head = sizes.value_head = 256;
  sizes.batch = {1, 12};
  EXPECT_TRUE(IsForSplitAttention(sizes));
  sizes.queries = 5;
  EXPECT_FALSE(IsForSplitAttention(sizes));
  sizes.queries = 1, sizes.value_head = 257;
  EXPECT_FALSE(IsForSplitAttention(sizes));
}

INSTANTIATE_TEST_SUITE_P(Types, SplitAttention,
                         testing::Values(DataType::kFloat, DataType::kFloat16, DataType::kBfloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace onnxd
