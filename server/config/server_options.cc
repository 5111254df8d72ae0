#include "server/config/server_options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <set>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// A whole decimal number; no sign tricks, no octal, no exponent.
Result<int64_t> ParseNumber(const std::string& text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool leading_zero = text.size() > 1 && text[0] == '0';
  if (error != std::errc() || stop != text.data() + text.size() || leading_zero || value < low ||
      value > high) {
    return InvalidArgument(
        StrCat("'", text.substr(0, 64), "' is not a whole number from ", low, " to ", high));
  }
  return value;
}

using Options = ServerOptions;

template <typename Section>
OptionKey Number(std::string section, std::string key, Section Options::*part,
                 int64_t Section::*field, int64_t low, int64_t high, std::string unit = "") {
  return {section, key, unit,
          [=](Options& options, const std::string& text) -> Status {
            ONNXD_ASSIGN_OR_RETURN((options.*part).*field, ParseNumber(text, low, high));
            return Status::Ok();
          },
          [=](const Options& options) { return StrCat((options.*part).*field); }};
}

template <typename Section>
OptionKey Text(std::string section, std::string key, Section Options::*part,
               std::string Section::*field, std::set<std::string> allowed = {}) {
  return {section, key, "",
          [=](Options& options, const std::string& text) -> Status {
            if (!allowed.empty() && !allowed.contains(text)) {
              return InvalidArgument(
                  StrCat("'", text.substr(0, 64), "' is not one of ", StrJoin(allowed, ", ")));
            }
            (options.*part).*field = text;
            return Status::Ok();
          },
          [=](const Options& options) { return (options.*part).*field; }};
}

template <typename Section>
OptionKey Switch(std::string section, std::string key, Section Options::*part,
                 bool Section::*field) {
  return {
      section, key, "",
      [=](Options& options, const std::string& text) -> Status {
        if (text != "true" && text != "false") {
          return InvalidArgument(StrCat("'", text.substr(0, 64), "' is neither true nor false"));
        }
        (options.*part).*field = text == "true";
        return Status::Ok();
      },
      [=](const Options& options) -> std::string {
        return (options.*part).*field ? "true" : "false";
      }};
}

constexpr int64_t kMaxBytes = int64_t{1} << 46;
constexpr int64_t kMaxSeconds = 86400;

}  // namespace

const std::vector<OptionKey>& OptionKeys() {
  using O = ServerOptions;
  static const std::vector<OptionKey> keys = {
      Text("server", "bind", &O::server, &O::Listen::bind),
      Number("server", "http_port", &O::server, &O::Listen::http_port, 0, 65535),
      Number("server", "grpc_port", &O::server, &O::Listen::grpc_port, 0, 65535),
      Number("server", "metrics_port", &O::server, &O::Listen::metrics_port, 0, 65535),
      Number("server", "io_threads", &O::server, &O::Listen::io_threads, 1, 256),
      Text("models", "repository", &O::models, &O::Models::repository),
      Text("models", "default_model", &O::models, &O::Models::default_model),
      Text("models", "control_mode", &O::models, &O::Models::control_mode,
           {"auto", "poll", "fixed", "explicit"}),
      Text("models", "readiness", &O::models, &O::Models::readiness, {"any", "all"}),
      Number("models", "poll_interval_s", &O::models, &O::Models::poll_interval_s, 1, kMaxSeconds,
             "s"),
      Text("models", "versions", &O::models, &O::Models::versions),
      Text("models", "model_name", &O::models, &O::Models::model_name),
      Text("runtime", "providers", &O::runtime, &O::Runtime::providers),
      Text("runtime", "plugins", &O::runtime, &O::Runtime::plugins),
      Text("runtime", "optimization", &O::runtime, &O::Runtime::optimization,
           {"disable", "basic", "extended", "all"}),
      Text("runtime", "cache_dir", &O::runtime, &O::Runtime::cache_dir),
      Number("runtime", "cache_bytes", &O::runtime, &O::Runtime::cache_bytes, 0, kMaxBytes,
             "bytes"),
      Text("runtime", "precision", &O::runtime, &O::Runtime::precision, {"fp32", "bf16", "bf16x3"}),
      Switch("runtime", "denormals_as_zero", &O::runtime, &O::Runtime::denormals_as_zero),
      Number("runtime", "threads", &O::runtime, &O::Runtime::threads, 1, 1024),
      Number("runtime", "executors", &O::runtime, &O::Runtime::executors, 0, 1024),
      Number("runtime", "max_run_bytes", &O::runtime, &O::Runtime::max_run_bytes, 1 << 20,
             kMaxBytes, "bytes"),
      Text("batching", "mode", &O::batching, &O::Batching::mode, {"auto", "off"}),
      Number("batching", "max_batch_size", &O::batching, &O::Batching::max_batch_size, 1, 65536),
      Number("batching", "max_queue_delay_us", &O::batching, &O::Batching::max_queue_delay_us, -1,
             10'000'000),
      Number("batching", "target_p99_ms", &O::batching, &O::Batching::target_p99_ms, 0, 3'600'000),
      Number("batching", "priority_levels", &O::batching, &O::Batching::priority_levels, 0, 1000),
      Number("batching", "default_priority_level", &O::batching,
             &O::Batching::default_priority_level, 1, 1000),
      Number("limits", "connections", &O::limits, &O::Limits::connections, 1, 1000000),
      Number("limits", "header_timeout_s", &O::limits, &O::Limits::header_timeout_s, 1, kMaxSeconds,
             "s"),
      Number("limits", "idle_timeout_s", &O::limits, &O::Limits::idle_timeout_s, 1, kMaxSeconds,
             "s"),
      Number("limits", "write_timeout_s", &O::limits, &O::Limits::write_timeout_s, 1, kMaxSeconds,
             "s"),
      Number("limits", "body_bytes", &O::limits, &O::Limits::body_bytes, 1024, kMaxBytes, "bytes"),
      Number("limits", "buffered_bytes", &O::limits, &O::Limits::buffered_bytes, 1024, kMaxBytes,
             "bytes"),
      Number("limits", "json_depth", &O::limits, &O::Limits::json_depth, 4, 1000),
      Number("limits", "queue_requests", &O::limits, &O::Limits::queue_requests, 1, 10000000),
      Number("limits", "requests_per_connection", &O::limits, &O::Limits::requests_per_connection,
             1, std::numeric_limits<int64_t>::max()),
      Number("limits", "drain_delay_s", &O::limits, &O::Limits::drain_delay_s, 0, kMaxSeconds, "s"),
      Number("limits", "drain_timeout_s", &O::limits, &O::Limits::drain_timeout_s, 0, kMaxSeconds,
             "s"),
      Text("log", "level", &O::log, &O::LogSettings::level,
           {"debug", "info", "warning", "error", "off"}),
      Text("log", "format", &O::log, &O::LogSettings::format, {"text", "json"}),
  };
  return keys;
}

namespace {

std::string VariableName(const std::string& section, const std::string& key) {
  std::string name = StrCat("ONNXD_", section, "_", key);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

}  // namespace

Status ApplyEnvironment(const std::map<std::string, std::string>& variables,
                        ServerOptions& options) {
  for (const auto& variable : variables) {
    const std::string& name = variable.first;
    const auto begins_with_section = [&](const OptionKey& key) {
      return name.starts_with(VariableName(key.section, ""));
    };
    if (std::none_of(OptionKeys().begin(), OptionKeys().end(), begins_with_section)) continue;
    const auto key =
        std::find_if(OptionKeys().begin(), OptionKeys().end(),
                     [&](const OptionKey& k) { return VariableName(k.section, k.key) == name; });
    if (key == OptionKeys().end()) {
      return InvalidArgument(StrCat("environment variable ", name, " names no configuration key"));
    }
    ONNXD_RETURN_IF_ERROR(key->set(options, variable.second).WithContext(name));
  }
  return Status::Ok();
}

}  // namespace onnxd
