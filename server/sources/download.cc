#include "server/sources/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

class OutputFile {
 public:
  explicit OutputFile(const std::string& path)
      : descriptor_(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {}
  ~OutputFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int64_t size() const {
    struct stat status {};
    return fstat(descriptor_, &status) == 0 ? status.st_size : 0;
  }
  bool CutTo(int64_t size) {
    return ftruncate(descriptor_, size) == 0 && lseek(descriptor_, size, SEEK_SET) == size;
  }
  bool Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }
  bool Flush() { return fsync(descriptor_) == 0; }

 private:
  const int descriptor_;
};

// Where a partial answer begins, by its Content-Range, "bytes 5-9/10".
int64_t BeginOf(const FetchResponse& response) {
  const std::string range = response.Header("content-range");
  return range.starts_with("bytes ") ? std::atoll(range.c_str() + 6) : -1;
}

// Another part, or all that is left. Ok: the server has nothing to add.
Status ReadOn(ObjectStore& store, const RemoteObject& object, const Fetcher& fetcher,
              OutputFile& file, int64_t most, const std::function<void(int64_t)>& count) {
  int64_t at = file.size();
  ONNXD_ASSIGN_OR_RETURN(const FetchRequest request, store.Read(object, at));
  const Fetcher::Sink sink{
      [&](const FetchResponse& response) -> Status {
        if (response.status == 206 && BeginOf(response) != at) {
          return Unavailable("the server sends another part than it was asked for");
        }
        if (response.status != 206) at = 0;
        const std::string etag = response.Header("etag");
        if (!etag.empty() && object.revision.starts_with('"') && etag != object.revision) {
          return Aborted("it changed while it was read");
        }
        return file.CutTo(at) ? Status::Ok() : Unavailable(std::strerror(errno));
      },
      [&](std::string_view bytes) -> Status {
        at += static_cast<int64_t>(bytes.size());
        if (at > most || (object.bytes >= 0 && at > object.bytes)) {
          return object.bytes >= 0 && at > object.bytes
                     ? Status(StatusCode::kDataLoss,
                              StrCat("more than the ", object.bytes, " bytes that it has"))
                     : ResourceExhausted(StrCat("more than ", most, " bytes"));
        }
        count(static_cast<int64_t>(bytes.size()));
        return file.Write(bytes) ? Status::Ok()
                                 : Unavailable(StrCat("cannot write: ", std::strerror(errno)));
      }};
  ONNXD_ASSIGN_OR_RETURN(const auto response, fetcher.Stream(request, sink));
  if (response.status == 416) {  // what is here is none of it
    return file.CutTo(0) ? Unavailable("the server has no such part") : Unavailable("cannot write");
  }
  if (response.status == 412) return Aborted("it changed while it was read");
  return response.status / 100 == 2 ? Status::Ok() : StatusOf(response, object.path);
}

Status ReadAll(ObjectStore& store, const RemoteObject& object, const Fetcher& fetcher,
               OutputFile& file, int64_t most, const std::function<void(int64_t)>& count) {
  for (int attempt = 1;;) {
    const int64_t before = file.size();
    if (object.bytes > 0 && before == object.bytes) return Status::Ok();
    if (fetcher.cancelled()) return Cancelled("the server is stopping");
    Status read = ReadOn(store, object, fetcher, file, most, count);
    const bool is_short = read.ok() && object.bytes >= 0 && file.size() < object.bytes;
    if (read.ok() && !is_short) return read;
    if (is_short) read = Unavailable(StrCat("only ", file.size(), " of ", object.bytes, " bytes"));
    if (read.code() != StatusCode::kUnavailable) return read;
    attempt = file.size() > before ? 1 : attempt + 1;  // it goes on
    if (attempt > Fetcher::kAttempts) return read;
    if (!fetcher.Pause(attempt)) return Cancelled("the server is stopping");
  }
}

}  // namespace

Status Download(ObjectStore& store, const RemoteObject& object, const Fetcher& fetcher,
                const std::string& path, int64_t most, const std::function<void(int64_t)>& count) {
  if (object.bytes > most) {
    return ResourceExhausted(StrCat("it has ", object.bytes, " bytes, of at most ", most));
  }
  std::error_code error;
  if (object.revision.empty()) fs::remove(path, error);  // of which contents nobody knows
  for (int attempt = 1;; ++attempt) {
    Status status;
    {
      OutputFile file(path);
      if (!file.is_open())
        return Unavailable(StrCat("cannot write ", path, ": ", std::strerror(errno)));
      status = ReadAll(store, object, fetcher, file, most, count);
      if (status.ok() && !file.Flush()) status = Unavailable(StrCat("cannot write ", path));
    }
    if (status.ok()) status = CheckFile(path, object.checksum);
    if (status.ok() || status.code() == StatusCode::kCancelled ||
        status.code() == StatusCode::kUnavailable) {
      return status;
    }
    fs::remove(path, error);
    // Once more: what stood here before may have been damaged.
    if (status.code() != StatusCode::kDataLoss || attempt == 2) return status;
  }
}

}  // namespace onnxd
