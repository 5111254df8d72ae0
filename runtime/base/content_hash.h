// 128-bit hashes of contents: XXH3 (https://github.com/Cyan4973/xxHash), some 10 GB/s. Without a
// secret it finds damage; with one, contents that were made to collide do not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace onnxd {

struct ContentHash {
  uint64_t low = 0, high = 0;
  bool operator==(const ContentHash&) const = default;
  std::string Hex() const;  // 32 digits
};

// At least 136 bytes.
using HashSecret = std::string;
inline constexpr size_t kHashSecretBytes = 192;
// Random bytes of the system.
HashSecret NewHashSecret();

ContentHash HashBytes(std::string_view bytes);
ContentHash HashBytes(std::string_view bytes, const HashSecret& secret);
// Errors as ByteSource::ReadAt.
Result<ContentHash> HashSource(const ByteSource& source);
Result<ContentHash> HashSource(const ByteSource& source, const HashSecret& secret);

}  // namespace onnxd
