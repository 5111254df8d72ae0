// Numbers and strings in a row of bytes, for files that this program alone writes and reads.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "runtime/base/status.h"

namespace onnxd {

class ByteWriter {
 public:
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void Number(T value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void Count(size_t value) { Number(static_cast<uint64_t>(value)); }
  void Text(std::string_view text) {
    Count(text.size());
    bytes_.append(text);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Reads what a ByteWriter wrote. Past the end everything is 0 and ok() is false, so that callers
// may check once, before they use what they read.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T> T Number() {
    T value{};
    if (Take(sizeof(value))) std::memcpy(&value, rest_.data() - sizeof(value), sizeof(value));
    return value;
  }
  // A number of things of at least `least` bytes each: 0 when so many cannot follow.
  size_t Count(size_t least) {
    const auto count = Number<uint64_t>();
    if (count <= rest_.size() / least) return static_cast<size_t>(count);
    ok_ = false;
    return 0;
  }
  std::string Text() {
    const size_t length = Count(1);
    const char* begin = rest_.data();
    return Take(length) ? std::string(begin, length) : std::string();
  }
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

 private:
  bool Take(size_t length) {
    if (!ok_ || length > rest_.size()) {
      ok_ = false;
      return false;
    }
    rest_.remove_prefix(length);
    return true;
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace onnxd
