#include "server/http/extension_api.h"

#include "runtime/base/str_cat.h"
#include "server/documents/log_settings.h"
#include "server/http/json_tensor.h"
#include "server/http/rest_api.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

constexpr int64_t kJsonDepth = 8;
constexpr std::string_view kSystem = "systemsharedmemory", kCuda = "cudasharedmemory";

using simdjson::dom::element;

HttpResponse Json(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  return response;
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

Result<LogSettings> ReadLogSettings(std::string_view body) {
  ONNXD_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(body, kJsonDepth));
  if (!document->root().is_object()) return InvalidArgument("the body must be a JSON object");
  LogSettings settings;
  for (const auto& [key, value] : simdjson::dom::object(document->root())) {
    const std::string name(key);
    if (value.is_bool()) {
      settings[name] = bool(value);
    } else if (value.is_int64()) {
      settings[name] = int64_t(value);
    } else if (value.is_string()) {
      settings[name] = std::string(std::string_view(value));
    } else {
      return InvalidArgument(StrCat("log setting '", name.substr(0, 64), "' has another type"));
    }
  }
  return settings;
}

HttpResponse Logging(const HttpRequest& request) {
  if (request.method == "POST") {
    const auto settings = ReadLogSettings(request.body.bytes);
    const Status applied = settings.ok() ? ApplyLogSettings(*settings) : settings.status();
    if (!applied.ok()) return ErrorResponse(applied);
  }
  return Json(LogSettingsJson());
}

// --- shared memory ---

Result<SharedMemory::Region> ReadRegion(const std::string& name, std::string_view body) {
  ONNXD_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(body, kJsonDepth));
  if (!document->root().is_object()) return InvalidArgument("the body must be a JSON object");
  SharedMemory::Region region{name, "", 0, 0};
  for (const auto& [key, value] : simdjson::dom::object(document->root())) {
    const bool read = key == "key"         ? value.is_string()
                      : key == "offset"    ? value.get(region.offset) == simdjson::SUCCESS
                      : key == "byte_size" ? value.get(region.bytes) == simdjson::SUCCESS
                                           : false;
    if (!read) {
      return InvalidArgument(
          "the body has the members \"key\", text, \"offset\" and \"byte_size\", numbers");
    }
    if (key == "key") region.key = std::string_view(value);
  }
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
    const auto wanted = ReadRegion(region, request.body.bytes);
    done = wanted.ok() ? memory.Register(*wanted) : wanted.status();
  }
  return done.ok() ? HttpResponse() : ErrorResponse(done);
}

}  // namespace

bool IsExtensionPath(const std::vector<std::string>& path) {
  if (path.size() < 2 || path[0] != "v2") return false;
  if (path[1] == "logging") return path.size() == 2;
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
  const bool allowed = verb == "logging" ? get || post : verb == "status" ? get : post;
  if (!allowed) {
    const char* methods = verb == "logging"  ? "GET, HEAD, POST"
                          : verb == "status" ? "GET, HEAD"
                                             : "POST";
    HttpResponse response = ErrorResponse(405, StrCat("method not allowed here; use ", methods));
    response.headers.emplace_back("Allow", methods);
    return response;
  }
  if (verb == "logging") return Logging(request);
  if (path[1] == kCuda) return CudaMemory(verb);
  return SystemMemory(service.shared_memory(), verb, path.size() == 5 ? path[3] : "", request);
}

}  // namespace onnxd
