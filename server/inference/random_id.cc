#include "server/inference/random_id.h"

#include <cstdint>
#include <random>

namespace onnxd {

std::string RandomId() {
  thread_local std::mt19937_64 random((static_cast<uint64_t>(std::random_device()()) << 32) ^
                                      std::random_device()());
  uint64_t bits = random();
  while (bits == 0) bits = random();
  std::string id(16, '0');
  for (char& digit : id) {
    digit = "0123456789abcdef"[bits & 15];
    bits >>= 4;
  }
  return id;
}

}  // namespace onnxd
