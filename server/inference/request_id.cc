#include "server/inference/request_id.h"

#include <algorithm>

#include "server/inference/random_id.h"

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
  return RandomId();
}

}  // namespace onnxd
