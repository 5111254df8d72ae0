#include "server/http/repository_api.h"

#include "runtime/base/str_cat.h"
#include "server/http/json_document.h"
#include "server/http/rest_api.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

// The body's member "ready"; false for an empty body. Other members are refused.
Result<bool> ReadyOnly(const HttpBody& body) {
  if (body.bytes.empty()) return false;
  bool ready = false;
  ONNXD_RETURN_IF_ERROR(ReadJsonObject(body, [&](std::string_view key, JsonValue value) {
    if (key == "ready" && value.get_bool().get(ready) == simdjson::SUCCESS) return Status::Ok();
    return InvalidArgument("the body may have one member, \"ready\": true or false");
  }));
  return ready;
}

// Of a load or unload: only "unload_dependents", which clients always send; models here do not
// depend on each other.
Status CheckParameters(const HttpBody& body, bool load) {
  if (body.bytes.empty()) return Status::Ok();
  return ReadJsonObject(body, [&](std::string_view member, JsonValue value) {
    JsonObject parameters;
    if (member != "parameters" || value.get_object().get(parameters) != simdjson::SUCCESS) {
      return InvalidArgument("the body may have one member, \"parameters\": an object");
    }
    return ForEachField(parameters, [&](std::string_view name, JsonValue parameter) {
      if (!load && name == "unload_dependents") return CheckIgnored(parameter, 0);
      return InvalidArgument(
          StrCat("parameter '", std::string(name.substr(0, 64)), "' is not supported"));
    });
  });
}

HttpResponse Index(const InferenceService& service, const Grant& grant, bool ready_only) {
  HttpResponse response;
  response.body = "[";
  for (const ModelRegistry::Entry& entry : service.Index()) {
    if (ready_only && entry.state != ModelRegistry::State::kReady) continue;
    if (!grant.CheckModel(entry.model).ok()) continue;
    if (response.body.size() > 1) response.body += ',';
    response.body += "{\"name\":";
    AppendJsonString(response.body, entry.model);
    response.body += ",\"version\":";
    AppendJsonString(response.body, entry.version);
    response.body += ",\"state\":";
    AppendJsonString(response.body, ModelRegistry::StateName(entry.state));
    response.body += ",\"reason\":";
    AppendJsonString(response.body, entry.reason);
    response.body += '}';
  }
  response.body += "]";
  return response;
}

}  // namespace

bool IsRepositoryPath(const std::vector<std::string>& path) {
  if (path.size() < 3 || path[1] != "repository") return false;
  if (path[2] == "index") return path.size() == 3;
  return path.size() == 5 && path[2] == "models" && (path[4] == "load" || path[4] == "unload");
}

void HandleRepository(InferenceService& service, const std::vector<std::string>& path,
                      HttpRequest request, HttpRespond respond) {
  if (path[2] == "index") {
    const auto ready_only = ReadyOnly(request.body);
    return respond(ready_only.ok() ? Index(service, *request.grant, *ready_only)
                                   : ErrorResponse(ready_only.status()));
  }
  const bool load = path[4] == "load";
  const Status known = CheckParameters(request.body, load);
  if (!known.ok()) return respond(ErrorResponse(known));
  service.Control(load, path[3], [respond = std::move(respond)](const Status& status) {
    respond(status.ok() ? HttpResponse{} : ErrorResponse(status));
  });
}

}  // namespace onnxd
