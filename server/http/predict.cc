#include "server/http/predict.h"

#include <cmath>
#include <optional>

#include "runtime/base/str_cat.h"
#include "server/http/find_model.h"
#include "server/http/json_tensor.h"
#include "server/http/request_timeout.h"
#include "server/http/rest_api.h"
#include "server/http/server_timing.h"
#include "server/inference/json_writer.h"
#include "server/inference/route_point.h"

namespace onnxd {
namespace {

// Text, or a whole number.
Result<std::string> TextOf(JsonValue json, std::string_view key) {
  std::string_view text;
  if (json.get_string().get(text) == simdjson::SUCCESS) return std::string(text);
  int64_t number;
  if (json.get_int64().get(number) == simdjson::SUCCESS) return StrCat(number);
  return InvalidArgument(StrCat("\"", key, "\" must be a string"));
}

Result<NamedValue> ReadInput(const ModelVersion& version, std::string_view name, JsonValue json,
                             int64_t expected, const JsonTensorOptions& options) {
  for (const auto& signature : version.inputs) {
    if (signature.name != name) continue;
    if (!signature.type.is_tensor()) {
      return Unimplemented(
          StrCat("input '", name, "' of type ", ToString(signature.type), " has no JSON form"));
    }
    ONNXD_ASSIGN_OR_RETURN(
        Tensor tensor, TensorFromNested(json, signature.type, signature.name, expected, options));
    return NamedValue{signature.name, std::move(tensor)};
  }
  std::vector<std::string> names;
  for (const auto& signature : version.inputs) names.push_back(signature.name);
  return InvalidArgument(StrCat("model '", version.model, "' has no input '", name.substr(0, 128),
                                "'; it takes: ", StrJoin(names, ", ")));
}

// The fields of the body. Which model it is for may stand behind the inputs, which are then read
// for the model that is meant when nothing is said, and once more if it is another.
class PredictBody {
 public:
  PredictBody(InferenceService& service, const HttpRequest& request, std::string model)
      : service_(service),
        grant_(*request.grant),
        point_(RoutePoint(request.origin.route_key)),
        path_model_(std::move(model)) {
    options_.max_depth = service.json().max_depth;
  }

  Status Read(const HttpBody& body) {
    size_ = body.bytes.size();
    ONNXD_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(body));
    ONNXD_ASSIGN_OR_RETURN(JsonObject root, document->Root());
    ONNXD_RETURN_IF_ERROR(ForEachField(root, [&](std::string_view key, JsonValue value) {
      ++fields_;
      return ReadField(key, value);
    }));
    ONNXD_RETURN_IF_ERROR(document->CheckEnd());
    if (!path_model_.empty() && !model_.empty() && model_ != path_model_) {
      return InvalidArgument("the path and the body name different models");
    }
    if (!values_at_) return NoInput();
    ONNXD_ASSIGN_OR_RETURN(const auto meant, FindModel());
    if (meant == version) return read_;
    version = meant;
    ONNXD_ASSIGN_OR_RETURN(root, document->Root());
    ONNXD_ASSIGN_OR_RETURN(const JsonValue values, FieldAt(root, *values_at_));
    return ReadInputs(values);
  }

  std::shared_ptr<const ModelVersion> version;
  std::vector<NamedValue> inputs;

 private:
  static Status NoInput() {
    return InvalidArgument("the body needs either \"input\" or \"inputs\"");
  }

  Result<std::shared_ptr<const ModelVersion>> FindModel() const {
    const std::string& name = path_model_.empty() ? model_ : path_model_;
    return FindGrantedModel(service_, grant_, name, version_, point_);
  }

  Status ReadField(std::string_view key, JsonValue value) {
    if (key == "model") {
      ONNXD_ASSIGN_OR_RETURN(model_, TextOf(value, key));
    } else if (key == "version") {
      ONNXD_ASSIGN_OR_RETURN(version_, TextOf(value, key));
    } else if (key == "input" || key == "inputs") {
      if (values_at_) return NoInput();
      values_at_ = fields_ - 1;
      named_ = key == "inputs";
      const auto guess = FindModel();
      if (!guess.ok()) return Status::Ok();
      version = *guess;
      read_ = ReadInputs(value);
    } else {
      return InvalidArgument(StrCat("unknown key \"", key.substr(0, 64),
                                    "\"; known are input, inputs, model, version"));
    }
    return Status::Ok();
  }

  Status ReadInputs(JsonValue json) {
    inputs.clear();
    const auto& signature = version->inputs;
    const auto add = [&](std::string_view name, JsonValue value) {
      const int64_t expected = ExpectedElements(inputs.empty() ? size_ : 0);
      ONNXD_ASSIGN_OR_RETURN(NamedValue input,
                             ReadInput(*version, name, value, expected, options_));
      inputs.push_back(std::move(input));
      return Status::Ok();
    };
    if (!named_) {
      if (signature.size() == 1) return add(signature[0].name, json);
      return InvalidArgument(StrCat("model '", version->model, "' has ", signature.size(),
                                    " inputs: name them with {\"inputs\": {\"name\": ...}}"));
    }
    JsonObject by_name;
    if (json.get_object().get(by_name) != simdjson::SUCCESS) {
      return InvalidArgument("\"inputs\" must be an object of arrays by input name");
    }
    return ForEachField(by_name, add);
  }

  InferenceService& service_;
  const Grant& grant_;
  const uint64_t point_;
  const std::string path_model_;
  JsonTensorOptions options_;
  size_t size_ = 0;
  int64_t fields_ = 0;
  std::string model_, version_;
  std::optional<int64_t> values_at_;  // which field holds the inputs
  bool named_ = false;
  Status read_;
};

Result<std::string> WriteAnswer(const InferenceResponse& response, NonFiniteNumbers& non_finite) {
  std::string out;
  if (response.outputs.size() == 1) {
    out = "{\"prediction\":";
    ONNXD_RETURN_IF_ERROR(AppendNested(out, response.outputs[0].value, non_finite));
  } else {
    out = "{\"predictions\":{";
    for (size_t i = 0; i < response.outputs.size(); ++i) {
      if (i > 0) out += ',';
      AppendJsonString(out, response.outputs[i].name);
      out += ':';
      ONNXD_RETURN_IF_ERROR(AppendNested(out, response.outputs[i].value, non_finite));
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

void HandlePredict(InferenceService& service, const std::string& model, HttpRequest request,
                   HttpRespond respond) {
  PredictBody body(service, request, model);
  InferenceRequest inference;
  Status status = body.Read(request.body);
  if (status.ok()) status = ApplyTimeout(request, inference);
  if (!status.ok()) {
    if (body.version != nullptr) InferenceService::NoteRefusal(*body.version);
    service.NoteUnrouted(Protocol::kHttp, status, request.origin);
    return respond(ErrorResponse(status));
  }
  auto ticket = service.EnterClient(*body.version, request.origin);
  if (!ticket.ok()) return respond(OverQuotaResponse(ticket.status()));
  inference.origin = std::move(request.origin);
  inference.inputs = std::move(body.inputs);
  service.Infer(body.version, std::move(inference), Protocol::kHttp,
                [&service, metrics = body.version->metrics, ticket = *std::move(ticket),
                 respond = std::move(respond)](Result<InferenceResponse> result) {
                  if (!result.ok()) return respond(ErrorResponse(result.status()));
                  NonFiniteNumbers non_finite{service.json().non_finite};
                  auto text = WriteAnswer(*result, non_finite);
                  metrics->CountNonFinite(non_finite.count);
                  if (!text.ok()) return respond(ErrorResponse(text.status()));
                  HttpResponse response;
                  response.body = std::move(*text);
                  AddServerTiming(*result, response);
                  respond(std::move(response));
                });
}

}  // namespace onnxd
