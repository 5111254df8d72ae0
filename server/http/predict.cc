#include "server/http/predict.h"

#include <cmath>
#include <optional>

#include "runtime/base/str_cat.h"
#include "server/http/json_tensor.h"
#include "server/http/request_timeout.h"
#include "server/http/rest_api.h"
#include "server/http/server_timing.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

using simdjson::dom::element;

Result<std::string> TextOf(const element& json, std::string_view key) {
  if (json.is_string()) return std::string(std::string_view(json));
  if (json.is_int64()) return StrCat(int64_t(json));
  return InvalidArgument(StrCat("\"", key, "\" must be a string"));
}

// The fields of the body.
struct PredictBody {
  std::string model, version;
  std::optional<element> input, inputs;
};

Result<PredictBody> ReadBody(const element& root) {
  if (!root.is_object()) return InvalidArgument("the body must be a JSON object");
  PredictBody body;
  for (const auto& [key, value] : simdjson::dom::object(root)) {
    if (key == "input") {
      body.input = value;
    } else if (key == "inputs") {
      body.inputs = value;
    } else if (key == "model") {
      ONNXD_ASSIGN_OR_RETURN(body.model, TextOf(value, key));
    } else if (key == "version") {
      ONNXD_ASSIGN_OR_RETURN(body.version, TextOf(value, key));
    } else {
      return InvalidArgument(StrCat("unknown key \"", key.substr(0, 64),
                                    "\"; known are input, inputs, model, version"));
    }
  }
  if (body.input.has_value() == body.inputs.has_value()) {
    return InvalidArgument("the body needs either \"input\" or \"inputs\"");
  }
  return body;
}

Status AddInput(const ModelVersion& version, const std::string& name, const element& json,
                int64_t max_elements, InferenceRequest& request) {
  for (const auto& signature : version.inputs) {
    if (signature.name != name) continue;
    if (!signature.type.is_tensor()) {
      return Unimplemented(
          StrCat("input '", name, "' of type ", ToString(signature.type), " has no JSON form"));
    }
    ONNXD_ASSIGN_OR_RETURN(Tensor tensor,
                           TensorFromNested(json, signature.type, name, max_elements));
    request.inputs.push_back({name, std::move(tensor)});
    return Status::Ok();
  }
  std::vector<std::string> names;
  for (const auto& signature : version.inputs) names.push_back(signature.name);
  return InvalidArgument(StrCat("model '", version.model, "' has no input '", name.substr(0, 128),
                                "'; it takes: ", StrJoin(names, ", ")));
}

struct Prediction {
  std::shared_ptr<const ModelVersion> version;
  InferenceRequest request;
};

Result<Prediction> ReadRequest(InferenceService& service, const ServerOptions::Limits& limits,
                               const std::string& path_model, std::string_view text) {
  ONNXD_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(text, limits.json_depth));
  ONNXD_ASSIGN_OR_RETURN(const PredictBody body, ReadBody(document->root()));
  if (!path_model.empty() && !body.model.empty() && body.model != path_model) {
    return InvalidArgument("the path and the body name different models");
  }
  Prediction prediction;
  ONNXD_ASSIGN_OR_RETURN(
      prediction.version,
      service.FindModel(path_model.empty() ? body.model : path_model, body.version));
  const auto& signature = prediction.version->inputs;
  const auto max_elements = static_cast<int64_t>(text.size());
  if (body.input) {
    if (signature.size() != 1) {
      return InvalidArgument(StrCat("model '", prediction.version->model, "' has ",
                                    signature.size(),
                                    " inputs: name them with {\"inputs\": {\"name\": ...}}"));
    }
    ONNXD_RETURN_IF_ERROR(AddInput(*prediction.version, signature[0].name, *body.input,
                                   max_elements, prediction.request));
    return prediction;
  }
  if (!body.inputs->is_object()) {
    return InvalidArgument("\"inputs\" must be an object of arrays by input name");
  }
  for (const auto& [name, value] : simdjson::dom::object(*body.inputs)) {
    ONNXD_RETURN_IF_ERROR(
        AddInput(*prediction.version, std::string(name), value, max_elements, prediction.request));
  }
  return prediction;
}

Result<std::string> WriteAnswer(const InferenceResponse& response) {
  std::string out;
  if (response.outputs.size() == 1) {
    out = "{\"prediction\":";
    ONNXD_RETURN_IF_ERROR(AppendNested(out, response.outputs[0].value));
  } else {
    out = "{\"predictions\":{";
    for (size_t i = 0; i < response.outputs.size(); ++i) {
      if (i > 0) out += ',';
      AppendJsonString(out, response.outputs[i].name);
      out += ':';
      ONNXD_RETURN_IF_ERROR(AppendNested(out, response.outputs[i].value));
    }
    out += '}';
  }
  const auto microseconds =
      std::chrono::duration<double, std::micro>(response.compute_time).count();
  out += StrCat(",\"inference_time_ms\":", std::round(microseconds) / 1000.0, ",\"model\":");
  AppendJsonString(out, response.model);
  out += ",\"model_version\":";
  AppendJsonString(out, response.version);
  out += '}';
  return out;
}

}  // namespace

void HandlePredict(InferenceService& service, const ServerOptions::Limits& limits,
                   const std::string& model, HttpRequest request, HttpRespond respond) {
  auto prediction = ReadRequest(service, limits, model, request.body.bytes);
  Status status =
      prediction.ok() ? ApplyTimeout(request, prediction->request) : prediction.status();
  if (status.ok()) status = request.grant->CheckModel(prediction->version->model);
  if (!status.ok()) {
    service.NoteUnrouted(Protocol::kHttp, status, request.id, request.client);
    return respond(ErrorResponse(status));
  }
  auto ticket = service.EnterClient(request.client);
  if (!ticket.ok()) return respond(OverQuotaResponse(ticket.status()));
  prediction->request.arrived = request.arrived;
  prediction->request.request_id = request.id;
  prediction->request.client = request.client;
  prediction->request.cancelled = request.cancelled;
  service.Infer(prediction->version, std::move(prediction->request), Protocol::kHttp,
                [ticket = *std::move(ticket),
                 respond = std::move(respond)](Result<InferenceResponse> result) {
                  if (!result.ok()) return respond(ErrorResponse(result.status()));
                  auto text = WriteAnswer(*result);
                  if (!text.ok()) return respond(ErrorResponse(text.status()));
                  HttpResponse response;
                  response.body = std::move(*text);
                  AddServerTiming(*result, response);
                  respond(std::move(response));
                });
}

}  // namespace onnxd
