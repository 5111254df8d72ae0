#include "server/http/invocations.h"

#include <boost/beast/core/string.hpp>

#include "runtime/base/str_cat.h"
#include "server/http/find_model.h"
#include "server/http/infer_body.h"
#include "server/http/json_document.h"
#include "server/http/open_inference.h"
#include "server/http/predict.h"
#include "server/http/rest_api.h"
#include "server/http/tensorflow_serving.h"
#include "server/inference/route_point.h"

namespace onnxd {
namespace {

constexpr std::string_view kBinaryType =
    "application/vnd.sagemaker-triton.binary+json;json-header-size=";

enum class Form { kPredict, kInstances, kInfer };

Form FormOf(std::string_view key, JsonValue value) {
  if (key == "input") return Form::kPredict;
  if (key == "instances") return Form::kInstances;
  const std::string_view bracket = value.raw_json_token();  // up to the next token
  const bool objects = bracket[0] == '[' && bracket.data()[bracket.size()] == '{';
  JsonArray array;
  if (!objects || value.get_array().get(array) != simdjson::SUCCESS) return Form::kInstances;
  for (auto entry : array) {  // the first tells
    JsonObject tensor;
    const bool named = entry.get_object().get(tensor) == simdjson::SUCCESS &&
                       tensor.find_field_unordered("datatype").error() == simdjson::SUCCESS;
    return named ? Form::kInfer : Form::kInstances;
  }
  return Form::kInstances;
}

// By the first key that tells; what else is wrong with the body its reader says.
Result<Form> FormOf(const HttpBody& body) {
  ONNXD_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(body));
  ONNXD_ASSIGN_OR_RETURN(JsonObject root, document->Root());
  for (auto entry : root) {
    simdjson::ondemand::field field;
    std::string_view key;
    ONNXD_RETURN_IF_ERROR(JsonStatus(std::move(entry).get(field)));
    ONNXD_RETURN_IF_ERROR(JsonStatus(field.unescaped_key().get(key)));
    if (key == "input" || key == "inputs" || key == "instances") return FormOf(key, field.value());
  }
  return InvalidArgument("the body needs \"instances\", \"inputs\" or \"input\"");
}

// The length of the JSON before binary tensors, where the type states it.
std::optional<std::string> StatedLength(const HttpRequest& request) {
  const std::string* const type = request.Header("Content-Type");
  if (type == nullptr || !type->starts_with(kBinaryType)) return std::nullopt;
  return type->substr(kBinaryType.size());
}

// The answer's type says what a header of the protocol says elsewhere.
void StateLength(HttpResponse& response) {
  for (const auto& [name, value] : response.headers) {
    if (boost::beast::iequals(name, kHeaderLength)) {
      response.content_type = StrCat(kBinaryType, value);
    }
  }
}

Result<std::string> ModelOf(InferenceService& service, const HttpRequest& request) {
  ONNXD_ASSIGN_OR_RETURN(const auto found, FindGrantedModel(service, *request.grant, "", "",
                                                            RoutePoint(request.origin.route_key)));
  return found->model;
}

}  // namespace

void HandleInvocations(InferenceService& service, HttpRequest request, HttpRespond respond) {
  const auto fail = [&](const Status& status) {
    service.NoteUnrouted(Protocol::kHttp, status, request.origin);
    respond(ErrorResponse(status));
  };
  const auto model = ModelOf(service, request);
  if (!model.ok()) return fail(model.status());
  const OpenInferenceRoute infer{OpenInferenceRoute::Verb::kInfer, *model, ""};
  if (auto length = StatedLength(request)) {
    request.headers.emplace_back(kHeaderLength, *std::move(length));
    return HandleOpenInference(service, infer, std::move(request),
                               [respond = std::move(respond)](HttpResponse response) {
                                 StateLength(response);
                                 respond(std::move(response));
                               });
  }
  const auto form = FormOf(request.body);
  if (!form.ok()) return fail(form.status());
  switch (*form) {
    case Form::kPredict:
      return HandlePredict(service, *model, std::move(request), std::move(respond));
    case Form::kInfer:
      return HandleOpenInference(service, infer, std::move(request), std::move(respond));
    case Form::kInstances:
      return HandleTensorFlowServing(service, {TensorFlowServingRoute::Verb::kPredict, *model, ""},
                                     std::move(request), std::move(respond));
  }
}

}  // namespace onnxd
