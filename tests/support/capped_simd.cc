// TEST_SIMD=avx2 runs every test with that instruction set: what newer processors would not try.
#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/math/simd.h"

namespace onnxd {
namespace {

class CappedSimd : public testing::Environment {
 public:
  void SetUp() override {
    const char* name = std::getenv("TEST_SIMD");
    if (name == nullptr) return;
    if (!math::SetSimd(name)) GTEST_SKIP() << "this processor has no " << name;
  }
};

[[maybe_unused]] const auto* const registered = testing::AddGlobalTestEnvironment(new CappedSimd);

}  // namespace
}  // namespace onnxd
