// NVIDIA's compiler, where the toolkit is: it needs no GPU.
#include "runtime/device/cuda/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/str_cat.h"
#include "runtime/device/dialect.h"
#if __has_include(<nvrtc.h>)
#include <nvrtc.h>
#endif

namespace onnxd {
namespace {

using testing::HasSubstr;

#if __has_include(<nvrtc.h>)
// Codes are an enumeration there, and an int here.
template <typename Ours, typename Theirs>
constexpr bool kSameParameters = false;
template <typename... Parameters>
constexpr bool kSameParameters<int (*)(Parameters...), nvrtcResult (*)(Parameters...)> = true;
#define ONNXD_SAME(name, parameters)                                                             \
  static_assert(kSameParameters<decltype(cuda::NvrtcApi::name), std::decay_t<decltype(::name)>>, \
                #name " is declared otherwise");
ONNXD_NVRTC_FUNCTIONS(ONNXD_SAME)
#undef ONNXD_SAME
static_assert(sizeof(nvrtcResult) == sizeof(int) && NVRTC_SUCCESS == 0);
#endif

class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto nvrtc = cuda::OpenNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
    nvrtc_ = *nvrtc;
  }
  const cuda::NvrtcApi* nvrtc_ = nullptr;
};

TEST_F(NvrtcTest, CompilesWhatTheDialectSays) {
  const std::string source = StrCat(Prelude(Dialect::kCuda), R"(
KERNEL mixed(GLOBAL const u16* halves, Dims dims, GLOBAL f32* out, GLOBAL u32* failure, u32 step) {
  LOCAL f32 shared[4];
  shared[LANE(0)] = f16_to_f32(halves[LANE(0)]) * (f32)dims.at[7];
  BARRIER();
  const f32 neighbour = shared[(LANE(0) + 1) % 4];
  if (neighbour != neighbour) RAISE(failure, step, 2u, GLOBAL_INDEX);
  out[LANE(0)] = bf16_to_f32(f32_to_bf16(f16_to_f32(f32_to_f16(exp(neighbour)))));
}
)");
  for (const int capability : {80, 90}) {
    const auto cubin = cuda::CompileToCubin(*nvrtc_, source, capability);
    ASSERT_TRUE(cubin.ok()) << cubin.status().ToString();
    EXPECT_EQ(cubin->substr(1, 3), "ELF");
    EXPECT_THAT(*cubin, HasSubstr("mixed"));
  }
}

TEST_F(NvrtcTest, WhatDoesNotCompileSaysWhatTheCompilerSaid) {
  const auto cubin = cuda::CompileToCubin(*nvrtc_, "nonsense", 90);
  ASSERT_FALSE(cubin.ok());
  EXPECT_EQ(cubin.status().code(), StatusCode::kInternal);
  EXPECT_THAT(cubin.status().message(), HasSubstr("nonsense"));
}

}  // namespace
}  // namespace onnxd
