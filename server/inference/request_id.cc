#include "server/inference/request_id.h"

#include <algorithm>
#include <random>

namespace onnxd {
namespace {

constexpr size_t kMostBytes = 128;

bool IsUsable(std::string_view id) {
  return !id.empty() && id.size() <= kMostBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

std::string RequestId(std::string_view of_client) {
  if (IsUsable(of_client)) return std::string(of_client);
  thread_local std::mt19937_64 random((static_cast<uint64_t>(std::random_device()()) << 32) ^
                                      std::random_device()());
  std::string id(16, '0');
  uint64_t bits = random();
  for (char& digit : id) {
    digit = "0123456789abcdef"[bits & 15];
    bits >>= 4;
  }
  return id;
}

}  // namespace onnxd
