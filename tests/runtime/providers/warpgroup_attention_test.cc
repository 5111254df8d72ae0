// Attention by warpgroups, emulated in OpenCL: the results of the CPU, and of one warp's kernel.
#include "runtime/providers/gpu/warpgroup_attention.h"

#include <gtest/gtest.h>

#include "runtime/base/str_cat.h"
#include "runtime/device/cuda/nvrtc.h"
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "runtime/providers/gpu/matrix_attention.h"
#include "tests/support/attention_testing.h"
#include "tests/support/device_testing.h"
#include "tests/support/matrix_device.h"

namespace onnxd {
namespace {

class WarpgroupAttention : public testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    auto device = FindOpenClDevice({.emulate_matrix_units = true, .emulate_warpgroup_units = true});
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = *device;
  }

  // Attention of ONNX, operator set 23, with a mask of `mask` where it has dimensions.
  void ExpectSame(const Heads& h, const Attributes& attributes = {}, const Shape& mask = {}) {
    CastModel m = AttentionOf(GetParam(), 23, h, attributes, mask);
    ExpectSameAsCpu(m.Answer("y"), m.inputs(), MakeGpuProvider("opencl", device_),
                    AttentionTolerance(GetParam()));
  }

  // What the kernel makes of waves; or a kernel for single warps.
  Tensor Run(const AttentionText& text, const FlashSizes& sizes, bool by_warps) {
    const MatrixAttentionTile tile{4, 32};
    const AttentionArguments arguments = *AttentionArgumentsOf(sizes, kWarpgroupQueries);
    EXPECT_EQ(tile.queries(), kWarpgroupQueries);
    LaunchGrid grid;
    grid.groups[0] = static_cast<uint32_t>(sizes.batch[0] * arguments.blocks);
    grid.lanes[0] = 128;
    if (!by_warps) grid.room_bytes = static_cast<size_t>(WarpgroupRoomBytes(sizes));
    const auto run = [&](GpuStream& stream, const AttentionPointers& pointers) -> Status {
      ONNXD_ASSIGN_OR_RETURN(
          const auto kernel,
          by_warps
              ? device_->FindKernel(MatrixAttentionSource(text, sizes, tile), "matrix_attention")
              : device_->FindKernel(WarpgroupAttentionSource(text, sizes), "warpgroup_attention"));
      return stream.Launch(*kernel, grid, arguments.All(pointers, [](LaunchArguments&) {}));
    };
    return AttentionOfWaves(*device_, text.type, sizes, 0, run);
  }

  // Both kernels; some elements differ.
  void ExpectAsByWarps(const AttentionText& text, const FlashSizes& sizes) {
    ASSERT_TRUE(IsForWarpgroups(text, sizes));
    const Tensor got = Run(text, sizes, false), wanted = Run(text, sizes, true);
    int wrong = 0;
    for (int64_t i = 0; i < got.ElementCount(); ++i) {
      const double difference = std::abs(ElementAt(got, i) - ElementAt(wanted, i));
      if (difference <= AttentionTolerance(GetParam()) || ++wrong > 3) continue;
      ADD_FAILURE() << "element " << i << " of " << sizes.queries << " queries and " << sizes.keys
                    << " keys: " << ElementAt(got, i) << " instead of " << ElementAt(wanted, i);
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_NE(ElementAt(got, 0), ElementAt(got, 1));
  }

  FlashSizes SizesOf(int64_t queries, int64_t keys, int64_t width) {
    FlashSizes sizes{};
    sizes.batch = {3};
    sizes.queries = queries, sizes.keys = keys, sizes.scale = 0.25f;
    sizes.head = sizes.value_head = width;
    sizes.q = sizes.y = {{queries * width}, width};
    sizes.k = sizes.v = {{keys * width}, width};
    return sizes;
  }

  int Programs() const {
    int count = 0;
    for (const std::string& source : device_->sources()) {
      count += source.find("warpgroup_attention(GLOBAL") != std::string::npos ? 1 : 0;
    }
    return count;
  }

  std::shared_ptr<GpuDevice> device_;
};

TEST_P(WarpgroupAttention, EveryTileIsComputed) {
  device_ = *FindMatrixDevice({.emulate_matrix_units = true, .emulate_warpgroup_units = true});
  AttentionText text;
  text.type = GetParam();
  for (const int64_t width : {64, 128}) {
    for (const int64_t keys : {32, 64, 90, 200}) ExpectAsByWarps(text, SizesOf(70, keys, width));
  }
  ExpectAsByWarps(text, SizesOf(16, 300, 64));
}

TEST_P(WarpgroupAttention, EveryTileHasItsBiasAndHidesKeys) {
  device_ = *FindMatrixDevice({.emulate_matrix_units = true, .emulate_warpgroup_units = true});
  AttentionText text;
  text.type = GetParam();
  text.bias_row = "k + query * 32";
  ExpectAsByWarps(text, SizesOf(70, 90, 64));
  text.bias_row = "";
  text.score = "(key > query ? -INFINITY_F32 : s)";
  text.end_key = "(down + QUERIES < keys ? down + QUERIES : keys)";
  ExpectAsByWarps(text, SizesOf(130, 130, 64));
}

TEST_P(WarpgroupAttention, IsWhatTheOperatorsTake) {
  ExpectSame({70, 70, 64, 64}, {}, {70, 70});
  ExpectSame({33, 130, 128, 64, 2, 4, 2});
  EXPECT_GE(Programs(), 2);
}

// What the emulation runs, tensor cores would: the same sources for NVIDIA's compiler.
TEST_P(WarpgroupAttention, CompilesForTensorCores) {
  const auto nvrtc = cuda::OpenNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  AttentionText text;
  text.type = GetParam();
  for (const bool has_bias : {false, true}) {
    if (has_bias) text.bias_row = "k + query * 32";
    for (const int64_t width : {64, 128}) {
      const std::string source = WarpgroupAttentionSource(text, SizesOf(128, 128, width));
      const auto cubin = cuda::CompileToCubin(**nvrtc, StrCat(Prelude(Dialect::kCuda), source), 90);
      EXPECT_TRUE(cubin.ok()) << cubin.status().ToString();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, WarpgroupAttention,
                         testing::Values(DataType::kFloat16, DataType::kBfloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace onnxd
