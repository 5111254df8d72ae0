// Compressed bytes of clients, inflated under a limit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace onnxd {

enum class Compression {
  kGzip,  // RFC 1952
  kZlib   // RFC 1950, what HTTP calls deflate (RFC 9110, section 8.4.1.2)
};

// Each growth of the result, in bytes, is asked of `admit` first; what was admitted stays so when
// it fails. kInvalidArgument for malformed, truncated or trailing bytes, kResourceExhausted beyond
// `limit` bytes, kUnavailable when `admit` refuses.
Result<std::string> Inflate(std::string_view bytes, Compression compression, int64_t limit,
                            const std::function<bool(int64_t)>& admit);

// At zlib's fastest level.
std::string Deflate(std::string_view bytes, Compression compression);

}  // namespace onnxd
