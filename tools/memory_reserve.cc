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
// Refusals that follow each other closer than this belong to one allocation.
constexpr auto kOneAllocation = std::chrono::milliseconds(50);

std::atomic<void*> reserve{nullptr};

void OnRefusal() {
  if (void* memory = reserve.exchange(nullptr)) return std::free(memory);
  thread_local int tries = 0;
  thread_local std::chrono::steady_clock::time_point last{};
  const auto now = std::chrono::steady_clock::now();
  tries = now - last < kOneAllocation ? tries + 1 : 1;
  last = now;
  if (tries > kTries) {
    tries = 0;
    throw std::bad_alloc();
  }
  std::this_thread::sleep_for(kPause);
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
