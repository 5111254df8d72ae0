#include "tools/memory_reserve.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

namespace onnxd {
namespace {

constexpr size_t kReserveBytes = 2 << 20;
constexpr int kTries = 4;
constexpr auto kPause = std::chrono::milliseconds(2);
// A refusal so soon after the pause is that of the same allocation.
constexpr auto kAtOnce = std::chrono::microseconds(100);

std::atomic<void*> reserve{nullptr};

void OnRefusal() {
  if (void* memory = reserve.exchange(nullptr)) return std::free(memory);
  thread_local int tries = 0;
  thread_local std::chrono::steady_clock::time_point paused{};
  tries = std::chrono::steady_clock::now() - paused < kAtOnce ? tries + 1 : 1;
  if (tries > kTries) {
    tries = 0;
    throw std::bad_alloc();
  }
  std::this_thread::sleep_for(kPause);
  paused = std::chrono::steady_clock::now();
}

}  // namespace

void KeepMemoryReserve() {
  RefillMemoryReserve();
  std::set_new_handler(OnRefusal);
}

void RefillMemoryReserve() {
  if (reserve.load() != nullptr) return;
  std::free(reserve.exchange(std::malloc(kReserveBytes)));
}

}  // namespace onnxd
