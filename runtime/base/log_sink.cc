#include "runtime/base/log_sink.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/str_cat.h"

namespace onnxd {

void LogSink::sink_it_(const spdlog::details::log_msg& message) {
  if (!Takes()) {
    ++lost_;
    return;
  }
  if (lost_ > 0) {
    const std::string text = StrCat(lost_, " lines of log were lost: nobody took them");
    spdlog::details::log_msg notice = message;
    notice.level = spdlog::level::warn;
    notice.payload = spdlog::string_view_t(text.data(), text.size());
    lost_ = 0;
    Write(notice);
    if (!Takes()) {
      ++lost_;
      return;
    }
  }
  Write(message);
}

bool LogSink::Takes() const {
  pollfd wanted{descriptor_, POLLOUT, 0};
  return poll(&wanted, 1, 0) == 1 && (wanted.revents & POLLOUT) != 0;
}

void LogSink::Write(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  const char* rest = line.data();
  size_t size = line.size();
  while (size > 0) {
    const ssize_t written = write(descriptor_, rest, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a full disk, a reader that is gone
    rest += written;
    size -= static_cast<size_t>(written);
  }
}

}  // namespace onnxd
