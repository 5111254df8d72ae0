// libFuzzer's entry, for the target that ONNXD_FUZZ_TARGET names; scripts/fuzz builds and runs it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const onnxd::FuzzTarget target = [] {
    const char* name = std::getenv("ONNXD_FUZZ_TARGET");
    const onnxd::FuzzTarget named = onnxd::FuzzTargetNamed(name == nullptr ? "" : name);
    if (named == nullptr) {
      std::fprintf(stderr, "ONNXD_FUZZ_TARGET names no target\n");
      std::exit(2);
    }
    return named;
  }();
  target({reinterpret_cast<const char*>(data), size});
  return 0;
}
