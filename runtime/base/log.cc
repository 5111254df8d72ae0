#include "runtime/base/log.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <new>

#include "runtime/base/log_sink.h"

namespace onnxd {
namespace {

constexpr size_t kMaxLineBytes = 2048;

std::atomic<LogFormat> g_format{LogFormat::kText};
std::atomic<LogLevel> g_level{LogLevel::kInfo};

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("onnxd", std::make_shared<LogSink>(STDERR_FILENO));
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    made->set_error_handler([](const std::string&) {});
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

std::string EscapeJson(std::string_view text, size_t most) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    if (out.size() >= most) break;
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string EscapeControl(std::string_view text, size_t most) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    if (out.size() >= most) break;
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out;
}

void ConfigureLog(LogLevel level, LogFormat format) {
  g_format = format;
  g_level = level;
  Logger().set_level(ToSpdlog(level));
  Logger().set_pattern(format == LogFormat::kText
                           ? "%Y-%m-%dT%H:%M:%S.%e %l %v"
                           : R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":"%v"})");
}

LogConfiguration CurrentLog() { return {g_level, g_format}; }

void Log(LogLevel level, std::string_view message) {
  if (!Logger().should_log(ToSpdlog(level))) return;
  try {
    const std::string line = g_format == LogFormat::kText ? EscapeControl(message, kMaxLineBytes)
                                                          : EscapeJson(message, kMaxLineBytes);
    Logger().log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
  } catch (const std::bad_alloc&) {  // a line less
  }
}

}  // namespace onnxd
