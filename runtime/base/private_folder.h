// PrivateFolder: files of this user that may be deleted at any time, shared by threads and
// processes: each is written aside and renamed, and never changed afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/content_hash.h"
#include "runtime/base/function_ref.h"
#include "runtime/base/status.h"

namespace onnxd {

// Every method may be called from any thread.
class PrivateFolder {
 public:
  // Makes the folder (mode 0700) with its secret when they are not there. On a read-only file
  // system files are found but not written. kFailedPrecondition when the folder cannot be made or
  // read, or belongs to another user.
  static Result<std::shared_ptr<PrivateFolder>> Open(const std::string& directory,
                                                     uint64_t limit_bytes);

  // Of hashes that others must not foresee.
  const HashSecret& secret() const { return secret_; }
  uint64_t limit_bytes() const { return limit_bytes_; }
  // Names of files have a dot.
  std::string PathOf(std::string_view name) const;

  // `write` gets the path aside; readers see the whole file or none.
  Status Write(std::string_view name, FunctionRef<Status(const std::string& path)> write);
  // It was used now.
  void Touch(std::string_view name);
  void Remove(std::string_view name);
  // Files used longest ago go, but not `keep`, until the rest is within the limit; and what a
  // process left behind that died while it wrote.
  void Evict(std::string_view keep);

 private:
  PrivateFolder(std::string directory, uint64_t limit_bytes)
      : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}
  Status ReadSecret();

  const std::string directory_;
  const uint64_t limit_bytes_;
  HashSecret secret_;
};

}  // namespace onnxd
