#include "server/documents/trace_settings.h"

#include <charconv>

#include "runtime/base/str_cat.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

constexpr std::string_view kLevel = "trace_level", kRate = "trace_rate", kCount = "trace_count";

Result<int64_t> NumberOf(std::string_view name, const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end) return number;
  return InvalidArgument(StrCat(name, " must be a whole number, not '", text.substr(0, 64), "'"));
}

Result<bool> IsOn(const std::vector<std::string>& levels) {
  bool on = false;
  for (const std::string& level : levels) {
    if (level != "OFF" && level != "TIMESTAMPS") {
      return InvalidArgument(
          StrCat("trace_level is OFF or TIMESTAMPS, not '", level.substr(0, 64), "'"));
    }
    on = on || level == "TIMESTAMPS";
  }
  return on;
}

}  // namespace

TraceSettingValues CurrentTraceSettings(const Tracer& tracer, const std::string& model) {
  const TraceSettings settings = tracer.Settings(model);
  return {{"trace_file", {""}},
          {"trace_level", {settings.on ? "TIMESTAMPS" : "OFF"}},
          {"trace_rate", {StrCat(settings.rate)}},
          {"trace_count", {StrCat(settings.count)}},
          {"trace_mode", {"opentelemetry"}},
          {"log_frequency", {"0"}}};
}

Status ApplyTraceSettings(Tracer& tracer, const std::string& model,
                          const TraceSettingChanges& changes) {
  const TraceSettingValues current = CurrentTraceSettings(tracer, model);
  const TraceSettings otherwise = model.empty() ? tracer.first_settings() : tracer.Settings("");
  TraceChanges wanted;
  for (const auto& [name, values] : changes) {
    const auto known = current.find(name);
    if (known == current.end()) {
      return InvalidArgument(StrCat("unknown trace setting '", name.substr(0, 64), "'"));
    }
    const bool resets = !values || values->empty();
    if (!resets && name != kLevel && values->size() != 1) {
      return InvalidArgument(StrCat(name, " has one value"));
    }
    if (name == kLevel) {
      wanted.on = otherwise.on;
      if (!resets) {
        ONNXD_ASSIGN_OR_RETURN(wanted.on, IsOn(*values));
      }
    } else if (name == kRate) {
      wanted.rate = otherwise.rate;
      if (!resets) {
        ONNXD_ASSIGN_OR_RETURN(wanted.rate, NumberOf(name, values->front()));
      }
    } else if (name == kCount) {
      wanted.count = otherwise.count;
      if (!resets) {
        ONNXD_ASSIGN_OR_RETURN(wanted.count, NumberOf(name, values->front()));
      }
    } else if (!resets && *values != known->second) {
      return InvalidArgument(StrCat(name,
                                    " cannot be changed: spans go where 'tracing.endpoint' of ",
                                    "the configuration says"));
    }
  }
  return tracer.Change(model, wanted);
}

std::string TraceSettingsJson(const TraceSettingValues& settings) {
  std::string out = "{";
  for (const auto& [name, values] : settings) {
    out += StrCat(out.size() > 1 ? "," : "", "\"", name, "\":");
    const bool list = name == kLevel;
    if (list) out += '[';
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out += ',';
      AppendJsonString(out, values[i]);
    }
    if (list) out += ']';
  }
  return out + "}";
}

}  // namespace onnxd
