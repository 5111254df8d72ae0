#include "server/http/open_inference.h"

#include "runtime/base/str_cat.h"
#include "server/documents/model_config.h"
#include "server/documents/model_statistics_json.h"
#include "server/documents/server_extensions.h"
#include "server/http/generate.h"
#include "server/http/infer_body.h"
#include "server/http/request_timeout.h"
#include "server/http/rest_api.h"
#include "server/http/server_timing.h"
#include "server/inference/binary_tensor.h"
#include "server/inference/data_type_name.h"
#include "server/inference/json_writer.h"
#include "server/inference/output_tensor.h"
#include "server/inference/route_point.h"

namespace onnxd {
namespace {

using Verb = OpenInferenceRoute::Verb;

// --- metadata ---

HttpResponse ServerMetadata() {
  HttpResponse response;
  response.body = R"({"name":"onnxd","version":")" ONNXD_VERSION R"(","extensions":[)";
  for (const std::string_view extension : kServerExtensions) {
    response.body += StrCat(extension == kServerExtensions[0] ? "" : ",", "\"", extension, "\"");
  }
  response.body += "]}";
  return response;
}

void AppendTensorMetadata(std::string& out, const std::vector<TensorMetadata>& tensors) {
  out += '[';
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i > 0) out += ',';
    out += "{\"name\":";
    AppendJsonString(out, tensors[i].name);
    out += ",\"datatype\":";
    const ValueType& type = tensors[i].type;
    // Values that are no tensors have no datatype in the protocol; their ONNX type is shown.
    AppendJsonString(
        out, type.is_tensor() ? std::string(ProtocolTypeName(type.element)) : ToString(type));
    out += ",\"shape\":[";
    if (type.shape) {
      for (size_t axis = 0; axis < type.shape->size(); ++axis) {
        if (axis > 0) out += ',';
        out += StrCat((*type.shape)[axis].value);  // -1 when free
      }
    }
    out += "]}";
  }
  out += ']';
}

HttpResponse ModelMetadataResponse(const ModelMetadata& metadata) {
  HttpResponse response;
  std::string& out = response.body;
  out = "{\"name\":";
  AppendJsonString(out, metadata.name);
  out += ",\"versions\":[";
  for (size_t i = 0; i < metadata.versions.size(); ++i) {
    if (i > 0) out += ',';
    AppendJsonString(out, metadata.versions[i]);
  }
  out += "],\"platform\":\"onnx_onnxv1\",\"inputs\":";
  AppendTensorMetadata(out, metadata.inputs);
  out += ",\"outputs\":";
  AppendTensorMetadata(out, metadata.outputs);
  out += '}';
  return response;
}

// --- response ---

// What an answer is written to.
struct AnswerParts {
  std::string json, binary;
  bool any_binary = false;
  NonFiniteNumbers& non_finite;
};

Status AppendOutput(AnswerParts& parts, const NamedValue& output, const ValuePlacement& placement,
                    bool binary_default, const SharedMemory& memory) {
  ONNXD_ASSIGN_OR_RETURN(const Tensor tensor,
                         OutputTensor(output, placement.classification, parts.non_finite));
  const std::string_view type = ProtocolTypeName(tensor.type());
  if (type.empty()) {
    return Unimplemented(StrCat("output '", output.name, "' of type ", DataTypeName(tensor.type()),
                                " has no protocol datatype"));
  }
  std::string& json = parts.json;
  json += "{\"name\":";
  AppendJsonString(json, output.name);
  json += StrCat(",\"datatype\":\"", type, "\",\"shape\":[", StrJoin(tensor.shape(), ","), "]");
  if (const auto& range = placement.shared_memory) {
    // Without parameters: Triton's C++ client takes any for those of binary data.
    ONNXD_RETURN_IF_ERROR(WriteToSharedMemory(memory, *range, tensor, output.name).status());
  } else if (placement.binary_data.value_or(binary_default)) {
    const size_t before = parts.binary.size();
    AppendTensorBytes(parts.binary, tensor);
    parts.any_binary = true;
    json += StrCat(",\"parameters\":{\"binary_data_size\":", parts.binary.size() - before, "}");
  } else {
    json += ",\"data\":";
    ONNXD_RETURN_IF_ERROR(AppendFlat(json, tensor, parts.non_finite)
                              .WithContext(StrCat("output '", output.name, "'")));
  }
  json += '}';
  return Status::Ok();
}

Result<HttpResponse> WriteAnswer(const InferenceResponse& answer,
                                 const std::vector<OutputRequest>& outputs, bool binary_default,
                                 const SharedMemory& memory, NonFiniteNumbers& non_finite) {
  AnswerParts parts{"", "", false, non_finite};
  std::string& json = parts.json;
  json = "{\"model_name\":";
  AppendJsonString(json, answer.model);
  json += ",\"model_version\":";
  AppendJsonString(json, answer.version);
  if (!answer.id.empty()) {
    json += ",\"id\":";
    AppendJsonString(json, answer.id);
  }
  json += ",\"outputs\":[";
  const ValuePlacement anywhere;
  for (size_t i = 0; i < answer.outputs.size(); ++i) {
    if (i > 0) json += ',';
    const ValuePlacement& placement = i < outputs.size() ? outputs[i].placement : anywhere;
    ONNXD_RETURN_IF_ERROR(
        AppendOutput(parts, answer.outputs[i], placement, binary_default, memory));
  }
  json += "]}";
  HttpResponse response;
  response.may_compress = true;
  if (parts.any_binary) {
    response.content_type = "application/octet-stream";
    response.headers.emplace_back(kHeaderLength, StrCat(json.size()));
    json += parts.binary;
  }
  response.body = std::move(json);
  return response;
}

void Infer(InferenceService& service, const OpenInferenceRoute& route, const HttpRequest& request,
           HttpRespond respond) {
  const auto fail = [&](const Status& status) {
    service.NoteUnrouted(Protocol::kHttp, status, request.origin);
    respond(ErrorResponse(status));
  };
  auto version = service.FindModel(route.model, route.version, RoutePoint(request.origin.route_key),
                                   [](const std::string&) { return false; });
  if (!version.ok()) return fail(version.status());
  auto parsed = ReadInferBody(**version, service.json(), service.shared_memory(), request);
  if (!parsed.ok()) {
    InferenceService::NoteRefusal(**version);
    return fail(parsed.status());
  }
  const Status timeout = ApplyTimeout(request, parsed->request);
  if (!timeout.ok()) return fail(timeout);
  auto ticket = service.EnterClient(**version, request.origin);
  if (!ticket.ok()) return respond(OverQuotaResponse(ticket.status()));
  parsed->request.origin = request.origin;
  service.Infer(*version, std::move(parsed->request), Protocol::kHttp,
                [&service, metrics = (*version)->metrics, ticket = *std::move(ticket),
                 respond = std::move(respond), outputs = std::move(parsed->outputs),
                 binary = parsed->binary_default](Result<InferenceResponse> result) {
                  if (!result.ok()) return respond(ErrorResponse(result.status()));
                  NonFiniteNumbers non_finite{service.json().non_finite};
                  auto response =
                      WriteAnswer(*result, outputs, binary, service.shared_memory(), non_finite);
                  metrics->CountNonFinite(non_finite.count);
                  if (!response.ok()) return respond(ErrorResponse(response.status()));
                  AddServerTiming(*result, *response);
                  respond(std::move(*response));
                });
}

}  // namespace

std::optional<OpenInferenceRoute> OpenInferenceRouteOf(const std::vector<std::string>& path) {
  if (path.size() == 1) return OpenInferenceRoute{Verb::kServerMetadata, "", ""};
  if (path.size() < 3 || path[1] != "models") return std::nullopt;
  if (path.size() == 3 && path[2] == "stats") return OpenInferenceRoute{Verb::kStatistics, "", ""};
  OpenInferenceRoute route{Verb::kModelMetadata, path[2], ""};
  size_t next = 3;
  if (path.size() >= 5 && path[3] == "versions") {
    route.version = path[4];
    next = 5;
  }
  if (path.size() == next) return route;
  if (path.size() != next + 1) return std::nullopt;
  if (path[next] == "ready") {
    route.verb = Verb::kModelReady;
  } else if (path[next] == "config") {
    route.verb = Verb::kModelConfig;
  } else if (path[next] == "stats") {
    route.verb = Verb::kStatistics;
  } else if (path[next] == "infer") {
    route.verb = Verb::kInfer;
  } else if (path[next] == "generate") {
    route.verb = Verb::kGenerate;
  } else if (path[next] == "generate_stream") {
    route.verb = Verb::kGenerateStream;
  } else {
    return std::nullopt;
  }
  return route;
}

void HandleOpenInference(InferenceService& service, const OpenInferenceRoute& route,
                         HttpRequest request, HttpRespond respond) {
  switch (route.verb) {
    case Verb::kServerMetadata:
      return respond(ServerMetadata());
    case Verb::kModelMetadata: {
      const auto metadata = service.Metadata(route.model, route.version);
      return respond(metadata.ok() ? ModelMetadataResponse(*metadata)
                                   : ErrorResponse(metadata.status()));
    }
    case Verb::kModelConfig: {
      const auto config = service.Config(route.model, route.version);
      if (!config.ok()) return respond(ErrorResponse(config.status()));
      HttpResponse response;
      response.body = ModelConfigJson(*config->version, config->batching);
      return respond(std::move(response));
    }
    case Verb::kStatistics: {
      const auto versions = service.Versions(route.model, route.version);
      if (!versions.ok()) return respond(ErrorResponse(versions.status()));
      HttpResponse response;
      response.body = ModelStatisticsJson(*versions);
      return respond(std::move(response));
    }
    case Verb::kModelReady: {
      const bool ready = service.ModelReady(route.model, route.version);
      HttpResponse response;
      response.status = ready ? 200 : 404;
      response.body = "{\"name\":";
      AppendJsonString(response.body, route.model);
      response.body += StrCat(",\"ready\":", ready, "}");
      return respond(std::move(response));
    }
    case Verb::kInfer:
      return Infer(service, route, request, std::move(respond));
    case Verb::kGenerate:
    case Verb::kGenerateStream:
      return HandleGenerate(
          service, route.model, route.version,
          route.verb == Verb::kGenerate ? GenerateForm::kWhole : GenerateForm::kStream,
          std::move(request), std::move(respond));
  }
}

}  // namespace onnxd
