// Attention on matrix units, emulated in OpenCL: the results of the CPU.
#include "runtime/providers/gpu/matrix_attention.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/device/cuda/nvrtc.h"
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "runtime/providers/gpu/pointwise.h"
#include "runtime/tensor/convert.h"
#include "runtime/tensor/device_tensor.h"
#include "tests/support/attention_testing.h"
#include "tests/support/device_testing.h"
#include "tests/support/matrix_device.h"

namespace onnxd {
namespace {

class MatrixAttention : public testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    auto device = FindOpenClDevice({.emulate_matrix_units = true});
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = *device;
    programs_before_ = Programs();
  }

  // Attention of ONNX, operator set 23, with a mask of `mask` where it has dimensions.
  void ExpectSame(const Heads& h, const Attributes& attributes = {}, const Shape& mask = {}) {
    CastModel m = AttentionOf(GetParam(), 23, h, attributes, mask);
    ExpectSameAsCpu(m.Answer("y"), m.inputs(), MakeGpuProvider("opencl", device_),
                    AttentionTolerance(GetParam()));
  }

  // What a tile's program makes of waves.
  Tensor RunTile(const AttentionText& text, const FlashSizes& sizes,
                 const MatrixAttentionTile& tile) {
    const AttentionArguments arguments = *AttentionArgumentsOf(sizes, tile.queries());
    LaunchGrid grid;
    grid.groups[0] = static_cast<uint32_t>(sizes.batch[0] * arguments.blocks);
    grid.lanes[0] = static_cast<uint32_t>(tile.warps * 32);
    const auto run = [&](GpuStream& stream, const AttentionPointers& pointers) -> Status {
      ONNXD_ASSIGN_OR_RETURN(
          const auto kernel,
          device_->FindKernel(MatrixAttentionSource(text, sizes, tile), "matrix_attention"));
      return stream.Launch(*kernel, grid, arguments.All(pointers, [](LaunchArguments&) {}));
    };
    return AttentionOfWaves(*device_, text.type, sizes, 0, run);
  }

  int Programs() const {
    int count = 0;
    for (const std::string& source : device_->sources()) {
      count += source.find("matrix_attention(GLOBAL") != std::string::npos ? 1 : 0;
    }
    return count;
  }

  std::shared_ptr<GpuDevice> device_;
  int programs_before_ = 0;  // the device's, which other tests may have used
};

Attributes Of(const std::string& name, Attribute value) {
  Attributes attributes;
  attributes.Set(name, std::move(value));
  return attributes;
}

TEST_P(MatrixAttention, OfAnyNumberOfQueriesAndKeys) {
  for (const int64_t queries : {16, 17, 70}) {
    for (const int64_t keys : {1, 32, 65, 130}) ExpectSame({queries, keys, 32, 32});
  }
  EXPECT_GT(Programs(), 0);
}

TEST_P(MatrixAttention, OfOneHeadWhoseGroupsHaveFewerWarps) {
  for (const int64_t queries : {16, 33, 50}) ExpectSame({queries, 70, 32, 32, 1, 1, 1});
  EXPECT_GT(Programs(), 1);
}

TEST_P(MatrixAttention, OfHeadsOfAnyWidthThatUnitsTake) {
  for (const int64_t width : {16, 64, 80, 128}) {
    ExpectSame({20, 40, width, width});
    ExpectSame({20, 40, width, 48});
  }
  EXPECT_GT(Programs(), 4);
}

TEST_P(MatrixAttention, HidesWhatComesLaterAndWhatAMaskHides) {
  ExpectSame({90, 90, 32, 32}, Of("is_causal", int64_t{1}));
  ExpectSame({33, 70, 32, 32}, {}, {33, 70});
  ExpectSame({33, 70, 32, 32}, {}, {1, 2, 33, 70});
  ExpectSame({33, 70, 32, 32}, Of("softcap", 2.0f));
  EXPECT_GE(Programs(), 3);  // a mask is the same program whatever its shape
}

TEST_P(MatrixAttention, SharesKeysAmongHeadsOfABatch) {
  ExpectSame({40, 50, 32, 32, 2, 6, 2}, Of("is_causal", int64_t{1}));
  EXPECT_GT(Programs(), 0);
}

TEST_P(MatrixAttention, EveryTileComputesTheSame) {
  device_ = *FindMatrixDevice({.emulate_matrix_units = true});
  FlashSizes sizes{};
  sizes.batch = {3};
  sizes.queries = 50, sizes.keys = 90, sizes.head = sizes.value_head = 32, sizes.scale = 0.25f;
  sizes.q = sizes.y = {{50 * 32}, 32};
  sizes.k = sizes.v = {{90 * 32}, 32};
  AttentionText text;
  text.type = GetParam();
  ASSERT_TRUE(IsForMatrixUnits(text, sizes));
  std::vector<Tensor> results;
  for (const MatrixAttentionTile& tile : MatrixAttentionTiles(sizes, 1)) {
    results.push_back(RunTile(text, sizes, tile));
  }
  ASSERT_EQ(results.size(), 4u);
  const double tolerance = AttentionTolerance(GetParam());
  for (const Tensor& other : results) {
    for (int64_t i = 0; i < other.ElementCount(); ++i) {
      ASSERT_NEAR(ElementAt(other, i), ElementAt(results[0], i), tolerance) << "element " << i;
    }
  }
  EXPECT_NE(ElementAt(results[0], 0), ElementAt(results[0], 1));
}

// The same elements: one by one where scores are made, or two at a time ahead of that.
TEST_P(MatrixAttention, EveryTileAddsABias) {
  device_ = *FindMatrixDevice({.emulate_matrix_units = true});
  FlashSizes sizes{};
  sizes.batch = {2};
  sizes.queries = 50, sizes.keys = 90, sizes.head = sizes.value_head = 32, sizes.scale = 0.25f;
  sizes.q = sizes.y = {{50 * 32}, 32};
  sizes.k = sizes.v = {{90 * 32}, 32};
  AttentionText text, one_by_one, ahead;
  text.type = GetParam();
  one_by_one = ahead = text;
  one_by_one.score = "s + X_GET(k, query * 32 + key)";
  ahead.bias_row = "k + query * 32";
  const double tolerance = AttentionTolerance(GetParam());
  for (const MatrixAttentionTile& tile : MatrixAttentionTiles(sizes, 1)) {
    const Tensor without = RunTile(text, sizes, tile), wanted = RunTile(one_by_one, sizes, tile);
    const Tensor got = RunTile(ahead, sizes, tile);
    double most = 0;
    for (int64_t i = 0; i < got.ElementCount(); ++i) {
      ASSERT_NEAR(ElementAt(got, i), ElementAt(wanted, i), tolerance) << "element " << i;
      most = std::max(most, std::abs(ElementAt(without, i) - ElementAt(wanted, i)));
    }
    EXPECT_GT(most, 2 * tolerance);
  }
}

TEST_P(MatrixAttention, IsSearchedForAmongTiles) {
  device_ = *FindOpenClDevice({.searches_tactics = true, .emulate_matrix_units = true});
  ExpectSame({70, 70, 32, 32});
  std::set<std::string> tiles;
  for (const std::string& source : device_->sources()) {
    if (source.find("matrix_attention(GLOBAL") == std::string::npos) continue;
    const size_t at = source.find("#define WARPS");
    tiles.insert(source.substr(at, source.find("#define HEAD", at) - at));
  }
  EXPECT_GE(tiles.size(), 4u);
}

TEST_P(MatrixAttention, LeavesFewQueriesAndOddWidthsToTheOtherKernel) {
  for (const int64_t width : {32, 128}) {  // tiles of keys that differ
    for (const int64_t queries : {1, 3, 5}) ExpectSame({queries, 150, width, width});
  }
  ExpectSame({1, 70, 32, 32});
  ExpectSame({20, 40, 40, 40});
  EXPECT_EQ(Programs(), programs_before_);
}

TEST_P(MatrixAttention, CompilesForTensorCores) {
  const auto nvrtc = cuda::OpenNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  ExpectSame({64, 64, 64, 64});
  ExpectSame({20, 40, 128, 128}, Of("is_causal", int64_t{1}));
  int compiled = 0;
  for (const std::string& source : device_->sources()) {
    if (source.find("matrix_attention(GLOBAL") == std::string::npos) continue;
    for (const int capability : {80, 90}) {
      const auto cubin =
          cuda::CompileToCubin(**nvrtc, StrCat(Prelude(Dialect::kCuda), source), capability);
      EXPECT_TRUE(cubin.ok()) << cubin.status().ToString();
    }
    if (++compiled == 2) break;
  }
  EXPECT_EQ(compiled, 2);
}

TEST(MatrixAttentionTiles, TheFirstHasFewerWarpsWhereGroupsWouldBeFew) {
  FlashSizes sizes{};
  sizes.queries = sizes.keys = 128;
  sizes.head = sizes.value_head = 64;
  sizes.batch = {64, 12};
  EXPECT_EQ(MatrixAttentionTiles(sizes, 132)[0].warps, 8);
  sizes.queries = 64;
  EXPECT_EQ(MatrixAttentionTiles(sizes, 132)[0].warps, 4) << "eight would take 128 queries";
  sizes.queries = 128;
  sizes.batch = {1, 12};
  EXPECT_EQ(MatrixAttentionTiles(sizes, 132)[0].warps, 1);
  EXPECT_EQ(MatrixAttentionTiles(sizes, 40)[0].warps, 2);
}

INSTANTIATE_TEST_SUITE_P(Types, MatrixAttention,
                         testing::Values(DataType::kFloat16, DataType::kBfloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace onnxd
