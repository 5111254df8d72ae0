// Reading files that may be hostile: regular files only, size fixed at open, positional reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

class MemoryAccount;

// Bytes at offsets. ReadAt may be called from any thread.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size() const = 0;
  // Fills `out` with `length` bytes from `offset`. kDataLoss when the source ends before.
  virtual Status ReadAt(uint64_t offset, void* out, size_t length) const = 0;
  // How messages name it.
  virtual const std::string& name() const = 0;
};

// A regular file, opened O_NOFOLLOW-free for the caller's own path (symbolic links allowed: the
// operator named it). kNotFound, or kInvalidArgument when it is no regular file.
Result<std::shared_ptr<const ByteSource>> OpenFile(const std::string& path);

// A file named by untrusted content, relative to `directory`: absolute paths, "..", symbolic links
// in any component, hard-linked and non-regular files are refused (openat2 with RESOLVE_BENEATH and
// RESOLVE_NO_SYMLINKS), and a FIFO does not block.
Result<std::shared_ptr<const ByteSource>> OpenFileBeneath(const std::string& directory,
                                                          const std::string& relative_path);

// Bytes in memory, owned.
std::shared_ptr<const ByteSource> MemorySource(std::string bytes, std::string name);

// A file's bytes, mapped for reading. Whoever shortens the file meanwhile kills the process: for
// files that this program owns.
class MappedFile {
 public:
  // As OpenFile; kInvalidArgument as well for an empty file, kResourceExhausted when the thread's
  // MemoryAccount has no room for its bytes.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return bytes_; }

 private:
  MappedFile() = default;
  std::string_view bytes_;
  std::shared_ptr<MemoryAccount> account_;  // that has the bytes; may be null
};

// The names in a folder, without "." and "..", in any order; kResourceExhausted for more than
// `most`, kNotFound, kUnavailable when it cannot be read. (std::filesystem's iterators end the
// process when memory is refused: libstdc++ declares what they call noexcept.)
Result<std::vector<std::string>> ListFolder(const std::string& path, size_t most);

// The whole file; kResourceExhausted when it is larger than `limit` bytes.
Result<std::string> ReadFile(const std::string& path, uint64_t limit);

// Creates or replaces `path` with `bytes`.
Status WriteFile(const std::string& path, std::string_view bytes);

// The same, but whoever reads it, also after a crash, finds all old bytes or all new ones. Mode,
// owner and group stay as they were where that is allowed; a new file gets `mode`. kUnavailable.
Status ReplaceFile(const std::string& path, std::string_view bytes, unsigned mode);

}  // namespace onnxd
