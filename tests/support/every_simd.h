// Tests that every instruction set of this processor faces.
#pragma once

#include <gtest/gtest.h>

#include "runtime/math/simd.h"

namespace onnxd::math {

// Parametrized with a name of Simd's.
class WithSimd : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    before_ = CurrentSimd().name;
    if (!SetSimd(GetParam())) {
      GTEST_SKIP() << "this processor has no " << GetParam();
    }
  }
  void TearDown() override { SetSimd(before_); }

 private:
  std::string_view before_;
};

inline auto EverySimdName() { return testing::Values("baseline", "avx2", "avx512", "avx512vnni", "amx"); }

}  // namespace onnxd::math
