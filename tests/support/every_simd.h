// Tests that every instruction set of this processor faces.
#pragma once

#include <gtest/gtest.h>

#include "runtime/math/simd.h"
#include "tests/support/emulated_tiles.h"

namespace onnxd::math {

// Caps the instruction set while it lives, or emulates AMX ("emulated_tiles").
class ScopedSimd {
 public:
  explicit ScopedSimd(std::string_view name)
      : before_(CurrentSimd()),
        is_there_(name == kEmulatedTiles ? SetEmulatedTiles() : SetSimd(name)) {}
  ~ScopedSimd() { SetSimd(before_); }
  ScopedSimd(const ScopedSimd&) = delete;
  ScopedSimd& operator=(const ScopedSimd&) = delete;

  bool is_there() const { return is_there_; }  // in this processor and build

 private:
  const Simd& before_;
  bool is_there_;
};

// Parametrized with a name of Simd's.
class WithSimd : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!simd_.is_there()) GTEST_SKIP() << "this processor has no " << GetParam();
  }

 private:
  const ScopedSimd simd_{GetParam()};
};

inline auto EverySimdName() {
  return testing::Values("baseline", "avx2", "avx512", "avx512vnni", "amx", kEmulatedTiles);
}

}  // namespace onnxd::math
