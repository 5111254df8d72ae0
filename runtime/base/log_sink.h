// Where log lines go: to stderr, as long as somebody takes them.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <cstdint>
#include <mutex>

namespace onnxd {

// A line that the other end of a pipe or a terminal does not take at once is lost and counted: a
// collector that stands still must not hold up whoever logs. The next line that is taken is
// preceded by one that says how many were lost. Lines must be of less than 4096 bytes, for which a
// pipe that is writable has room (pipe(7)).
class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LogSink(int descriptor) : descriptor_(descriptor) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}
  bool Takes() const;
  void Write(const spdlog::details::log_msg& message);

  const int descriptor_;
  int64_t lost_ = 0;
};

}  // namespace onnxd
