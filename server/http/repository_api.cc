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

Status ReadParameter(std::string_view name, JsonValue value, ModelManager::Command& command) {
  std::string_view text;
  if (command.load && name == "config") {
    if (value.get_string().get(text) != simdjson::SUCCESS) {
      return InvalidArgument("parameter 'config' must be a string of JSON");
    }
    command.config = text;
    return Status::Ok();
  }
  if (!command.load && name == "unload_dependents") {
    if (value.get_bool().get(command.unload_dependents) == simdjson::SUCCESS) return Status::Ok();
    return InvalidArgument("parameter 'unload_dependents' must be true or false");
  }
  return InvalidArgument(
      StrCat("parameter '", std::string(name.substr(0, 64)), "' is not supported"));
}

Status ReadParameters(const HttpBody& body, ModelManager::Command& command) {
  if (body.bytes.empty()) return Status::Ok();
  return ReadJsonObject(body, [&](std::string_view member, JsonValue value) {
    JsonObject parameters;
    if (member != "parameters" || value.get_object().get(parameters) != simdjson::SUCCESS) {
      return InvalidArgument("the body may have one member, \"parameters\": an object");
    }
    return ForEachField(parameters, [&](std::string_view name, JsonValue parameter) {
      return ReadParameter(name, parameter, command);
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
  ModelManager::Command command{path[4] == "load", path[3]};
  const Status read = ReadParameters(request.body, command);
  if (!read.ok()) return respond(ErrorResponse(read));
  service.Control(std::move(command), [respond = std::move(respond)](const Status& status) {
    respond(status.ok() ? HttpResponse{} : ErrorResponse(status));
  });
}

}  // namespace onnxd
