#include "server/net/connection_age.h"

#include <atomic>
#include <cmath>

namespace onnxd {

std::chrono::steady_clock::time_point EndOfAge(const ServerOptions::Limits& limits,
                                               std::chrono::steady_clock::time_point now) {
  using std::chrono::steady_clock;
  if (limits.connection_age_s == 0) return steady_clock::time_point::max();
  // Multiples of the golden ratio lie evenly, however many there are.
  static std::atomic<uint32_t> connections{0};
  double whole = 0;
  const double part = std::modf(0.6180339887 * connections.fetch_add(1), &whole);
  const std::chrono::duration<double> age(static_cast<double>(limits.connection_age_s) *
                                          (0.9 + 0.2 * part));
  return now + std::chrono::duration_cast<steady_clock::duration>(age);
}

}  // namespace onnxd
