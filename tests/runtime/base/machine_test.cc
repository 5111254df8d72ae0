#include "runtime/base/machine.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace onnxd {
namespace {

TEST(Machine, CoresAreNoMoreThanProcessors) {
  EXPECT_GE(AvailableCores(), 1);
  EXPECT_LE(AvailableCores(), AvailableProcessors());
}

TEST(Machine, OneProcessorIsOneCore) {
  std::thread([] {
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(AvailableProcessors(), 1);
    EXPECT_EQ(AvailableCores(), 1);
  }).join();
}

}  // namespace
}  // namespace onnxd
