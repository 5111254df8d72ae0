// Where a test opened OpenCL, leaks are looked for when the tests end, not when the process does:
// PoCL's threads end meanwhile, and LeakSanitizer dies reading their memory ("Tracer caught signal
// 11").
#include "runtime/base/address_sanitizer.h"

#ifdef ONNXD_ADDRESS_SANITIZER
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>

// The interceptor takes the two words before a thread-local block for its bounds. glibc has written
// none there since 2.25: after LLVM compiled a kernel, LeakSanitizer died reading between them.
const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }

// Without it, what PoCL's compiler keeps for each of its threads counts as lost.
const char* __lsan_default_suppressions() { return "leak:libpocl"; }

namespace {

class LeakCheck : public testing::Environment {
 public:
  void TearDown() override {
    if (dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr) __lsan_do_leak_check();
  }
};

[[maybe_unused]] const auto* const registered =
    testing::AddGlobalTestEnvironment(new LeakCheck);

}  // namespace
#endif
