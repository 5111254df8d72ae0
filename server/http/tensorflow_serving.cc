#include "server/http/tensorflow_serving.h"

#include <map>

#include "runtime/base/str_cat.h"
#include "server/http/instances.h"
#include "server/http/request_timeout.h"
#include "server/http/rest_api.h"
#include "server/http/server_timing.h"
#include "server/inference/json_writer.h"
#include "server/inference/route_point.h"

namespace onnxd {
namespace {

using Verb = TensorFlowServingRoute::Verb;

// As its numbers in tensorflow/core/framework/types.proto are named.
std::string_view DtypeName(DataType type) {
  static const std::map<DataType, std::string_view> kNames = {
      {DataType::kFloat, "DT_FLOAT"},         {DataType::kDouble, "DT_DOUBLE"},
      {DataType::kFloat16, "DT_HALF"},        {DataType::kBfloat16, "DT_BFLOAT16"},
      {DataType::kInt8, "DT_INT8"},           {DataType::kInt16, "DT_INT16"},
      {DataType::kInt32, "DT_INT32"},         {DataType::kInt64, "DT_INT64"},
      {DataType::kUint8, "DT_UINT8"},         {DataType::kUint16, "DT_UINT16"},
      {DataType::kUint32, "DT_UINT32"},       {DataType::kUint64, "DT_UINT64"},
      {DataType::kBool, "DT_BOOL"},           {DataType::kString, "DT_STRING"},
      {DataType::kComplex64, "DT_COMPLEX64"}, {DataType::kComplex128, "DT_COMPLEX128"}};
  const auto found = kNames.find(type);
  return found == kNames.end() ? "DT_INVALID" : found->second;
}

const char* StateOf(ModelRegistry::State state) {
  switch (state) {
    case ModelRegistry::State::kReady:
      return "AVAILABLE";
    case ModelRegistry::State::kLoading:
      return "LOADING";
    case ModelRegistry::State::kUnavailable:
      return "END";
  }
  return "UNKNOWN";
}

void AppendStatus(std::string& out, const ModelRegistry::Entry& entry) {
  const bool failed = entry.state == ModelRegistry::State::kUnavailable;
  out += "{\"version\":";
  AppendJsonString(out, entry.version);
  out += StrCat(",\"state\":\"", StateOf(entry.state), "\",\"status\":{\"error_code\":\"",
                failed ? "UNKNOWN" : "OK", "\",\"error_message\":");
  AppendJsonString(out, entry.reason);
  out += "}}";
}

HttpResponse Json(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  return response;
}

// KServe's list and OpenAI's in one object: the models that the key is for.
HttpResponse List(const InferenceService& service, const HttpRequest& request) {
  std::string names, objects;
  for (const std::string& model : service.ModelNames()) {
    if (!request.grant->CheckModel(model).ok()) continue;
    const char* const separator = names.empty() ? "" : ",";
    std::string name;
    AppendJsonString(name, model);
    names += separator + name;
    objects += StrCat(separator, "{\"id\":", name,
                      ",\"object\":\"model\",\"created\":0,\"owned_by\":\"onnxd\"}");
  }
  return Json(StrCat("{\"models\":[", names, "],\"object\":\"list\",\"data\":[", objects, "]}"));
}

// TensorFlow Serving's, with KServe's "name" and "ready".
HttpResponse StatusOf(const InferenceService& service, const TensorFlowServingRoute& route) {
  std::string wanted = route.version;
  if (const auto rollout = service.RolloutOf(route.model); rollout.ok()) {
    wanted = rollout->now.Resolve(wanted);
  }
  std::string out = "{\"model_version_status\":[";
  const char* separator = "";
  for (const auto& entry : service.Index()) {
    if (entry.model != route.model || (!wanted.empty() && entry.version != wanted)) continue;
    out += separator;
    AppendStatus(out, entry);
    separator = ",";
  }
  if (*separator == '\0') {
    return ErrorResponse(NotFound(StrCat("no version of model '", route.model.substr(0, 128),
                                         "' fits: ", route.version.substr(0, 64))));
  }
  out += "],\"name\":";
  AppendJsonString(out, route.model);
  return Json(StrCat(out, ",\"ready\":", service.ModelReady(route.model, route.version), "}"));
}

void AppendSignature(std::string& out, const std::vector<TensorMetadata>& values) {
  const char* separator = "";
  for (const TensorMetadata& value : values) {
    out += separator;
    AppendJsonString(out, value.name);
    out +=
        StrCat(":{\"dtype\":\"", DtypeName(value.type.element), "\",\"tensor_shape\":{\"dim\":[");
    const char* comma = "";
    if (value.type.shape) {
      for (const auto& dim : *value.type.shape) {
        out += StrCat(comma, "{\"size\":\"", dim.value, "\",\"name\":\"\"}");
        comma = ",";
      }
    }
    out += StrCat("],\"unknown_rank\":", !value.type.shape, "},\"name\":");
    AppendJsonString(out, value.name);
    out += "}";
    separator = ",";
  }
}

HttpResponse MetadataOf(const InferenceService& service, const TensorFlowServingRoute& route) {
  const auto config = service.Config(route.model, route.version);
  const auto metadata = service.Metadata(route.model, route.version);
  if (!config.ok()) return ErrorResponse(config.status());
  if (!metadata.ok()) return ErrorResponse(metadata.status());
  std::string out = "{\"model_spec\":{\"name\":";
  AppendJsonString(out, metadata->name);
  out += ",\"signature_name\":\"\",\"version\":";
  AppendJsonString(out, config->version->version);
  out += "},\"metadata\":{\"signature_def\":{\"signature_def\":{\"serving_default\":{\"inputs\":{";
  AppendSignature(out, metadata->inputs);
  out += "},\"outputs\":{";
  AppendSignature(out, metadata->outputs);
  return Json(out + "},\"method_name\":\"tensorflow/serving/predict\"}}}}}");
}

void Predict(InferenceService& service, const TensorFlowServingRoute& route, HttpRequest request,
             HttpRespond respond) {
  const auto fail = [&](const Status& status) {
    service.NoteUnrouted(Protocol::kHttp, status, request.origin);
    respond(ErrorResponse(status));
  };
  const auto version =
      service.FindModel(route.model, route.version, RoutePoint(request.origin.route_key),
                        [](const std::string&) { return false; });
  if (!version.ok()) return fail(version.status());
  auto form = ReadInstances(request.body, **version, service.json().max_depth);
  if (!form.ok()) {
    InferenceService::NoteRefusal(**version);
    return fail(form.status());
  }
  InferenceRequest inference;
  const Status timeout = ApplyTimeout(request, inference);
  if (!timeout.ok()) return fail(timeout);
  auto ticket = service.EnterClient(**version, request.origin);
  if (!ticket.ok()) return respond(OverQuotaResponse(ticket.status()));
  inference.origin = std::move(request.origin);
  inference.inputs = std::move(form->inputs);
  service.Infer(
      *version, std::move(inference), Protocol::kHttp,
      [metrics = (*version)->metrics, ticket = *std::move(ticket), respond = std::move(respond),
       form = *std::move(form)](Result<InferenceResponse> result) {
        if (!result.ok()) return respond(ErrorResponse(result.status()));
        NonFiniteNumbers non_finite{NonFinite::kToken};
        auto text = WritePredictions(form, *result, non_finite);
        metrics->CountNonFinite(non_finite.count);
        if (!text.ok()) return respond(ErrorResponse(text.status()));
        HttpResponse response = Json(*std::move(text));
        response.headers.emplace_back("X-Model-Version", result->version);
        AddServerTiming(*result, response);
        respond(std::move(response));
      });
}

}  // namespace

std::optional<TensorFlowServingRoute> TensorFlowServingRouteOf(
    const std::vector<std::string>& path) {
  if (path.size() < 2 || path[0] != "v1" || path[1] != "models") return std::nullopt;
  TensorFlowServingRoute route{Verb::kStatus, "", ""};
  if (path.size() == 2) {
    route.verb = Verb::kList;
    return route;
  }
  route.model = path[2];
  size_t next = 3;
  if (path.size() >= 5 && (path[3] == "versions" || path[3] == "labels")) {
    route.version = path[4];
    next = 5;
  }
  if (path.size() == next) return route;
  if (path.size() != next + 1) return std::nullopt;
  if (path[next] == "metadata") {
    route.verb = Verb::kMetadata;
  } else if (path[next] == ":predict") {
    route.verb = Verb::kPredict;
  } else {
    return std::nullopt;
  }
  return route;
}

void HandleTensorFlowServing(InferenceService& service, const TensorFlowServingRoute& route,
                             HttpRequest request, HttpRespond respond) {
  switch (route.verb) {
    case Verb::kList:
      return respond(List(service, request));
    case Verb::kStatus:
      return respond(StatusOf(service, route));
    case Verb::kMetadata:
      return respond(MetadataOf(service, route));
    case Verb::kPredict:
      return Predict(service, route, std::move(request), std::move(respond));
  }
}

}  // namespace onnxd
