// One line of log at a level. The sink (stderr, text or JSON) is chosen once by the program;
// control characters in the message are escaped, so that input quoted in it cannot forge lines.
#pragma once

#include <string>
#include <string_view>

namespace onnxd {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };
enum class LogFormat { kText, kJson };

// Any thread. Until it is called: text at kInfo.
void ConfigureLog(LogLevel level, LogFormat format);

// What was configured last. Any thread.
struct LogConfiguration {
  LogLevel level;
  LogFormat format;
};
LogConfiguration CurrentLog();

// Any thread. Lines longer than 2 KB are cut. Throws nothing and waits for nobody: without memory,
// or where stderr takes none, the line is lost.
void Log(LogLevel level, std::string_view message);
inline void LogInfo(std::string_view message) { Log(LogLevel::kInfo, message); }
inline void LogWarning(std::string_view message) { Log(LogLevel::kWarning, message); }
inline void LogError(std::string_view message) { Log(LogLevel::kError, message); }

// Replaces control characters and backslashes by \n, \t, \xNN; ends once there are `most` bytes.
std::string EscapeControl(std::string_view text, size_t most = std::string::npos);

}  // namespace onnxd
