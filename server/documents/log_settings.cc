#include "server/documents/log_settings.h"

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// The level at which all of these are on that should be.
Result<LogLevel> LevelOf(const LogSettings& settings) {
  const bool on[] = {std::get<int64_t>(settings.at("log_verbose_level")) > 0,
                     std::get<bool>(settings.at("log_info")),
                     std::get<bool>(settings.at("log_warning")),
                     std::get<bool>(settings.at("log_error"))};
  constexpr LogLevel kLevels[] = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning,
                                  LogLevel::kError, LogLevel::kOff};
  size_t first = 0;
  while (first < std::size(on) && !on[first]) ++first;
  for (size_t i = first; i < std::size(on); ++i) {
    if (!on[i]) {
      return InvalidArgument(
          "log levels are ordered: what is more urgent than a level that is on "
          "is on, too");
    }
  }
  return kLevels[first];
}

}  // namespace

LogSettings CurrentLogSettings() {
  const auto [level, format] = CurrentLog();
  return {{"log_file", std::string()},
          {"log_info", level <= LogLevel::kInfo},
          {"log_warning", level <= LogLevel::kWarning},
          {"log_error", level <= LogLevel::kError},
          {"log_verbose_level", int64_t{level == LogLevel::kDebug}},
          {"log_format", std::string(format == LogFormat::kJson ? "json" : "default")}};
}

Status ApplyLogSettings(const LogSettings& changes) {
  LogSettings settings = CurrentLogSettings();
  for (const auto& [name, value] : changes) {
    const auto known = settings.find(name);
    if (known == settings.end()) {
      return InvalidArgument(StrCat("unknown log setting '", name.substr(0, 64), "'"));
    }
    if (known->second.index() != value.index()) {
      return InvalidArgument(StrCat("log setting '", name, "' has another type"));
    }
    if (name == "log_file" && value != known->second) {
      return InvalidArgument("the log goes to stderr; clients cannot choose a file");
    }
    known->second = value;
  }
  const std::string& format = std::get<std::string>(settings.at("log_format"));
  if (format != "default" && format != "ISO8601" && format != "json") {
    return InvalidArgument("log_format is default, ISO8601 or json");
  }
  ONNXD_ASSIGN_OR_RETURN(const LogLevel level, LevelOf(settings));
  ConfigureLog(level, format == "json" ? LogFormat::kJson : LogFormat::kText);
  return Status::Ok();
}

}  // namespace onnxd
