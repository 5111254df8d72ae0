#include "server/inference/route_point.h"

#include <atomic>

namespace onnxd {

uint64_t RoutePoint(std::string_view key) {
  static std::atomic<uint64_t> requests{0};
  if (key.empty()) {
    // Multiples of the golden ratio lie evenly, however many there are.
    return requests.fetch_add(1, std::memory_order_relaxed) * 0x9e3779b97f4a7c15u;
  }
  // FNV-1a, then the finalizer of splitmix64 (Steele, Lea and Flood, 2014).
  // Source: http://www.isthe.com/chongo/tech/comp/fnv/
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : key) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 31);
}

}  // namespace onnxd
