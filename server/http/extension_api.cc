#include "server/http/extension_api.h"

#include "runtime/base/str_cat.h"
#include "server/documents/log_settings.h"
#include "server/documents/trace_settings.h"
#include "server/http/json_document.h"
#include "server/http/rest_api.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

constexpr size_t kMostTraceValues = 16;
constexpr std::string_view kSystem = "systemsharedmemory", kCuda = "cudasharedmemory";

HttpResponse Json(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  return response;
}

// --- tracing ---

Result<std::vector<std::string>> ReadTraceValues(std::string_view key, JsonValue value) {
  std::vector<std::string> values;
  std::string_view text;
  if (value.get_string().get(text) == simdjson::SUCCESS) return std::vector{std::string(text)};
  simdjson::ondemand::array array;
  const Status wrong = InvalidArgument(
      StrCat("trace setting '", key.substr(0, 64), "' must be a string or an array of strings"));
  if (value.get_array().get(array) != simdjson::SUCCESS) return wrong;
  for (auto element : array) {
    if (element.get_string().get(text) != simdjson::SUCCESS || values.size() == kMostTraceValues) {
      return wrong;
    }
    values.emplace_back(text);
  }
  return values;
}

Result<TraceSettingChanges> ReadTraceSettings(const HttpBody& body) {
  TraceSettingChanges settings;
  ONNXD_RETURN_IF_ERROR(ReadJsonObject(body, [&](std::string_view key, JsonValue value) {
    auto& setting = settings[std::string(key)];
    bool null = false;
    if (value.is_null().get(null) == simdjson::SUCCESS && null) return Status::Ok();
    ONNXD_ASSIGN_OR_RETURN(setting, ReadTraceValues(key, value));
    return Status::Ok();
  }));
  return settings;
}

HttpResponse Tracing(InferenceService& service, const std::string& model,
                     const HttpRequest& request) {
  if (!model.empty()) {
    const auto versions = service.Versions(model, "");
    if (!versions.ok()) return ErrorResponse(versions.status());
  }
  if (request.method == "POST") {
    const auto settings = ReadTraceSettings(request.body);
    const Status applied =
        settings.ok() ? ApplyTraceSettings(service.tracer(), model, *settings) : settings.status();
    if (!applied.ok()) return ErrorResponse(applied);
  }
  return Json(TraceSettingsJson(CurrentTraceSettings(service.tracer(), model)));
}

// --- logging ---

std::string LogSettingsJson() {
  std::string out = "{";
  for (const auto& [name, value] : CurrentLogSettings()) {
    out += StrCat(out.size() > 1 ? "," : "", "\"", name, "\":");
    if (const bool* flag = std::get_if<bool>(&value)) out += *flag ? "true" : "false";
    if (const int64_t* number = std::get_if<int64_t>(&value)) out += StrCat(*number);
    if (const std::string* text = std::get_if<std::string>(&value)) AppendJsonString(out, *text);
  }
  return out + "}";
}

Result<LogSettings> ReadLogSettings(const HttpBody& body) {
  LogSettings settings;
  ONNXD_RETURN_IF_ERROR(ReadJsonObject(body, [&](std::string_view key, JsonValue value) {
    auto& setting = settings[std::string(key)];
    bool flag;
    int64_t number;
    std::string_view text;
    if (value.get_bool().get(flag) == simdjson::SUCCESS) {
      setting = flag;
    } else if (value.get_int64().get(number) == simdjson::SUCCESS) {
      setting = number;
    } else if (value.get_string().get(text) == simdjson::SUCCESS) {
      setting = std::string(text);
    } else {
      return InvalidArgument(StrCat("log setting '", key.substr(0, 64), "' has another type"));
    }
    return Status::Ok();
  }));
  return settings;
}

HttpResponse Logging(const HttpRequest& request) {
  if (request.method == "POST") {
    const auto settings = ReadLogSettings(request.body);
    const Status applied = settings.ok() ? ApplyLogSettings(*settings) : settings.status();
    if (!applied.ok()) return ErrorResponse(applied);
  }
  return Json(LogSettingsJson());
}

// --- shared memory ---

Result<SharedMemory::Region> ReadRegion(const std::string& name, const HttpBody& body) {
  SharedMemory::Region region{name, "", 0, 0};
  ONNXD_RETURN_IF_ERROR(ReadJsonObject(body, [&](std::string_view key, JsonValue value) {
    std::string_view text;
    const auto read = key == "key"         ? value.get_string().get(text)
                      : key == "offset"    ? value.get_uint64().get(region.offset)
                      : key == "byte_size" ? value.get_uint64().get(region.bytes)
                                           : simdjson::NO_SUCH_FIELD;
    if (key == "key") region.key = text;
    if (read == simdjson::SUCCESS) return Status::Ok();
    return InvalidArgument(
        "the body has the members \"key\", text, \"offset\" and \"byte_size\", numbers");
  }));
  return region;
}

std::string RegionsJson(const std::map<std::string, SharedMemory::Region>& regions) {
  std::string out = "[";
  for (const auto& [name, region] : regions) {
    out += out.size() > 1 ? ",{\"name\":" : "{\"name\":";
    AppendJsonString(out, name);
    out += ",\"key\":";
    AppendJsonString(out, region.key);
    out += StrCat(",\"offset\":", region.offset, ",\"byte_size\":", region.bytes, "}");
  }
  return out + "]";
}

// No model here computes on a GPU: there are no regions, and none can be registered.
HttpResponse CudaMemory(const std::string& verb) {
  if (verb == "register")
    return ErrorResponse(Unimplemented("CUDA shared memory is not supported"));
  return verb == "status" ? Json("[]") : HttpResponse();
}

HttpResponse SystemMemory(SharedMemory& memory, const std::string& verb, const std::string& region,
                          const HttpRequest& request) {
  if (verb == "status") {
    const auto regions = memory.Regions(region);
    return regions.ok() ? Json(RegionsJson(*regions)) : ErrorResponse(regions.status());
  }
  Status done;
  if (verb == "unregister") {
    done = memory.Unregister(region);
  } else {
    const auto wanted = ReadRegion(region, request.body);
    done = wanted.ok() ? memory.Register(*wanted) : wanted.status();
  }
  return done.ok() ? HttpResponse() : ErrorResponse(done);
}

}  // namespace

bool IsExtensionPath(const std::vector<std::string>& path) {
  if (path.size() < 2 || path[0] != "v2") return false;
  if (path[1] == "logging") return path.size() == 2;
  if (path[1] == "trace") return path.size() == 3 && path[2] == "setting";
  if (path[1] == "models") {
    const bool of_version = path.size() == 7 && path[3] == "versions";
    return (path.size() == 5 || of_version) && path[path.size() - 2] == "trace" &&
           path.back() == "setting";
  }
  if (path[1] != kSystem && path[1] != kCuda) return false;
  const std::string& verb = path.back();
  const bool of_region = path.size() == 5 && path[2] == "region";
  if (verb == "register") return of_region;
  return (verb == "status" || verb == "unregister") && (of_region || path.size() == 3);
}

HttpResponse HandleExtension(InferenceService& service, const std::vector<std::string>& path,
                             const HttpRequest& request) {
  const bool get = request.method == "GET" || request.method == "HEAD";
  const bool post = request.method == "POST";
  const std::string& verb = path.back();
  const bool settings = verb == "logging" || verb == "setting";
  const bool allowed = settings ? get || post : verb == "status" ? get : post;
  if (!allowed) {
    const char* methods = settings ? "GET, HEAD, POST" : verb == "status" ? "GET, HEAD" : "POST";
    HttpResponse response = ErrorResponse(405, StrCat("method not allowed here; use ", methods));
    response.headers.emplace_back("Allow", methods);
    return response;
  }
  if (verb == "logging") return Logging(request);
  if (verb == "setting") return Tracing(service, path[1] == "models" ? path[2] : "", request);
  if (path[1] == kCuda) return CudaMemory(verb);
  return SystemMemory(service.shared_memory(), verb, path.size() == 5 ? path[3] : "", request);
}

}  // namespace onnxd
