#include "runtime/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/base/memory_account.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

std::string ErrnoText(int error) { return std::strerror(error); }  // NOLINT: glibc's is thread-safe

class FileSource : public ByteSource {
 public:
  FileSource(int descriptor, uint64_t size, std::string name)
      : descriptor_(descriptor), size_(size), name_(std::move(name)) {}
  ~FileSource() override { close(descriptor_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  uint64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }

  Status ReadAt(uint64_t offset, void* out, size_t length) const override {
    auto* cursor = static_cast<char*>(out);
    while (length > 0) {
      const ssize_t got = pread(descriptor_, cursor, length, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        return Status(StatusCode::kDataLoss, StrCat("reading ", name_, ": ", ErrnoText(errno)));
      if (got == 0)
        return Status(StatusCode::kDataLoss, StrCat(name_, " became shorter while it was read"));
      cursor += got;
      offset += static_cast<uint64_t>(got);
      length -= static_cast<size_t>(got);
    }
    return Status::Ok();
  }

 private:
  int descriptor_;
  uint64_t size_;
  std::string name_;
};

class StringSource : public ByteSource {
 public:
  StringSource(std::string bytes, std::string name)
      : bytes_(std::move(bytes)), name_(std::move(name)) {}
  uint64_t size() const override { return bytes_.size(); }
  const std::string& name() const override { return name_; }
  Status ReadAt(uint64_t offset, void* out, size_t length) const override {
    if (offset > bytes_.size() || length > bytes_.size() - offset) {
      return Status(StatusCode::kDataLoss, StrCat(name_, " ends too early"));
    }
    if (length > 0) std::memcpy(out, bytes_.data() + offset, length);
    return Status::Ok();
  }

 private:
  std::string bytes_;
  std::string name_;
};

Result<std::shared_ptr<const ByteSource>> AdoptDescriptor(int descriptor, const std::string& name,
                                                          bool refuse_hard_links) {
  struct stat info {};
  if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(descriptor);
    return InvalidArgument(StrCat(name, " is not a regular file"));
  }
  if (refuse_hard_links && info.st_nlink > 1) {
    close(descriptor);
    return InvalidArgument(StrCat(name, " has several hard links, which is refused here"));
  }
  return std::shared_ptr<const ByteSource>(
      std::make_shared<FileSource>(descriptor, static_cast<uint64_t>(info.st_size), name));
}

}  // namespace

Result<std::shared_ptr<const ByteSource>> OpenFile(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) {
    const int error = errno;
    if (error == ENOENT) return NotFound(StrCat("no such file: ", path));
    return FailedPrecondition(StrCat("cannot open ", path, ": ", ErrnoText(error)));
  }
  return AdoptDescriptor(descriptor, path, false);
}

Result<std::shared_ptr<const ByteSource>> OpenFileBeneath(const std::string& directory,
                                                          const std::string& relative_path) {
  if (relative_path.empty() || relative_path.size() > 4096 ||
      relative_path.find('\0') != std::string::npos) {
    return InvalidArgument("an external data location must be a relative path");
  }
  const int root =
      open(directory.empty() ? "." : directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return FailedPrecondition(StrCat("cannot open directory ", directory));
  struct open_how how {};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const long descriptor = syscall(SYS_openat2, root, relative_path.c_str(), &how, sizeof(how));
  const int error = errno;
  close(root);
  if (descriptor < 0) {
    return InvalidArgument(
        StrCat("external data location '", relative_path,
               "' cannot be opened beneath the model's folder: ", ErrnoText(error)));
  }
  return AdoptDescriptor(static_cast<int>(descriptor), relative_path, true);
}

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return NotFound(StrCat("cannot open ", path, ": ", ErrnoText(errno)));
  struct stat info {};
  void* mapped = MAP_FAILED;
  MemoryAccount* const account = ChargeTo::Current();
  const bool fits =
      fstat(descriptor, &info) == 0 && (account == nullptr || account->Add(info.st_size));
  if (fits && S_ISREG(info.st_mode) && info.st_size > 0) {
    mapped = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE | MAP_POPULATE,
                  descriptor, 0);
  }
  close(descriptor);
  if (!fits) return ResourceExhausted(StrCat("no memory for ", path));
  if (mapped == MAP_FAILED) {
    if (account != nullptr) account->Release(info.st_size);
    return InvalidArgument(StrCat("cannot map ", path));
  }
  auto file = std::shared_ptr<MappedFile>(new MappedFile());
  if (account != nullptr) file->account_ = account->shared_from_this();
  file->bytes_ = {static_cast<const char*>(mapped), static_cast<size_t>(info.st_size)};
  return std::shared_ptr<const MappedFile>(std::move(file));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  if (account_ != nullptr) account_->Release(static_cast<int64_t>(bytes_.size()));
}

std::shared_ptr<const ByteSource> MemorySource(std::string bytes, std::string name) {
  return std::make_shared<StringSource>(std::move(bytes), std::move(name));
}

Result<std::vector<std::string>> ListFolder(const std::string& path, size_t most) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (folder == nullptr) {
    const std::string text = StrCat("cannot read ", path, ": ", ErrnoText(errno));
    return errno == ENOENT ? NotFound(text) : Unavailable(text);
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name(entry->d_name);
    if (name == "." || name == "..") continue;
    if (names.size() == most) {
      return ResourceExhausted(StrCat("there are more than ", most, " files in ", path));
    }
    names.emplace_back(name);
  }
  if (errno != 0) return Unavailable(StrCat("cannot read ", path, ": ", ErrnoText(errno)));
  return names;
}

Result<std::string> ReadFile(const std::string& path, uint64_t limit) {
  ONNXD_ASSIGN_OR_RETURN(auto source, OpenFile(path));
  if (source->size() > limit) {
    return ResourceExhausted(StrCat(path, " has ", source->size(), " bytes, the limit is ", limit));
  }
  std::string bytes(source->size(), '\0');
  ONNXD_RETURN_IF_ERROR(source->ReadAt(0, bytes.data(), bytes.size()));
  return bytes;
}

Status WriteFile(const std::string& path, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr)
    return FailedPrecondition(StrCat("cannot write ", path, ": ", ErrnoText(errno)));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (std::fclose(file) != 0 || !written) {
    return FailedPrecondition(StrCat("cannot write ", path, ": ", ErrnoText(errno)));
  }
  return Status::Ok();
}

namespace {

// A file like that of the name `old`, or with `mode` where there is none.
bool WriteAndSync(const std::string& path, std::string_view bytes, const std::string& old,
                  unsigned mode) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return false;
  struct stat before {};
  const bool replaces = stat(old.c_str(), &before) == 0;
  const bool owned = replaces && fchown(file, before.st_uid, before.st_gid) == 0;
  const bool written =
      write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
      fchmod(file, owned ? before.st_mode & 0777 : mode) == 0 && fsync(file) == 0;
  return close(file) == 0 && written;
}

}  // namespace

Status ReplaceFile(const std::string& path, std::string_view bytes, unsigned mode) {
  const std::string aside = StrCat(path, ".", getpid());
  if (WriteAndSync(aside, bytes, path, mode) && rename(aside.c_str(), path.c_str()) == 0) {
    return Status::Ok();
  }
  const int reason = errno;
  unlink(aside.c_str());
  return Unavailable(StrCat("cannot write ", path, ": ", ErrnoText(reason)));
}

}  // namespace onnxd
