#include "server/http/generate.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "server/http/event_stream.h"
#include "server/http/generation_parameters.h"
#include "server/http/infer_parameters.h"
#include "server/http/json_tensor.h"
#include "server/http/request_timeout.h"
#include "server/http/rest_api.h"
#include "server/http/server_timing.h"
#include "server/inference/json_writer.h"
#include "server/inference/route_point.h"

namespace onnxd {
namespace {

// The shape of so many elements of an input.
Result<Shape> FilledShape(const TensorSignature& input, int64_t elements) {
  if (!input.type.shape) return Shape({elements});
  const SymbolicShape& declared = *input.type.shape;
  int64_t left = elements;
  bool divides = true;
  size_t last_free = declared.size();
  for (size_t axis = 0; axis < declared.size(); ++axis) {
    if (!declared[axis].known()) {
      last_free = axis;
      continue;
    }
    const int64_t length = declared[axis].value;
    divides = divides && length > 0 && left % length == 0;
    if (divides) left /= length;
  }
  if (!divides || (last_free == declared.size() && left != 1)) {
    return InvalidArgument(StrCat("input '", input.name, "' has ", elements,
                                  " elements, which do not fill ", ToString(input.type)));
  }
  Shape shape;
  for (size_t axis = 0; axis < declared.size(); ++axis) {
    shape.Append(declared[axis].known() ? declared[axis].value : axis == last_free ? left : 1);
  }
  return shape;
}

class GenerateBody {
 public:
  GenerateBody(const ModelVersion& version, int64_t max_depth) : version_(version) {
    options_.max_depth = max_depth;
    options_.non_finite_tokens = true;
  }

  Result<InferenceRequest> Read(const HttpBody& body) {
    size_ = body.bytes.size();
    ONNXD_RETURN_IF_ERROR(ReadJsonObject(
        body, [&](std::string_view key, JsonValue value) { return ReadField(key, value); }));
    return std::move(request_);
  }

 private:
  Status ReadField(std::string_view key, JsonValue value) {
    if (key == "id") {
      ONNXD_ASSIGN_OR_RETURN(request_.id, ReadRequestId(value));
      return Status::Ok();
    }
    if (key != "parameters") return ReadInputOrParameter(key, value);
    JsonObject parameters;
    if (value.get_object().get(parameters) != simdjson::SUCCESS) {
      return InvalidArgument("parameters must be an object");
    }
    return ForEachField(parameters, [&](std::string_view name, JsonValue parameter) {
      return ReadInputOrParameter(name, parameter);
    });
  }

  Status ReadInputOrParameter(std::string_view key, JsonValue value) {
    const auto& inputs = version_.inputs;
    const auto input =
        std::find_if(inputs.begin(), inputs.end(),
                     [&](const TensorSignature& candidate) { return candidate.name == key; });
    if (input != inputs.end()) return ReadInput(*input, value);
    if (version_.writes_texts) {
      ONNXD_ASSIGN_OR_RETURN(const bool is_of_generation,
                             ReadGenerationParameter(key, value, request_.generation));
      if (is_of_generation) return Status::Ok();
    }
    const std::string_view token = value.raw_json_token();
    if (token.starts_with('[') || token.starts_with('{')) {
      std::vector<std::string> names;
      for (const TensorSignature& known : inputs) names.push_back(known.name);
      return InvalidArgument(StrCat("model '", version_.model, "' has no input '",
                                    key.substr(0, 128), "', and a parameter is no ",
                                    token.starts_with('[') ? "array" : "object",
                                    "; it takes: ", StrJoin(names, ", ")));
    }
    return ReadInferParameter(key, value, options_.max_depth, false, request_);
  }

  Status ReadInput(const TensorSignature& input, JsonValue value) {
    if (!input.type.is_tensor()) {
      return Unimplemented(
          StrCat("input '", input.name, "' of type ", ToString(input.type), " has no JSON form"));
    }
    for (const NamedValue& other : request_.inputs) {
      if (other.name != input.name) continue;
      return InvalidArgument(StrCat("input '", input.name, "' is given twice"));
    }
    ValueType any_shape = input.type;
    any_shape.shape.reset();
    const int64_t expected = ExpectedElements(request_.inputs.empty() ? size_ : 0);
    ONNXD_ASSIGN_OR_RETURN(const Tensor tensor,
                           TensorFromNested(value, any_shape, input.name, expected, options_));
    ONNXD_ASSIGN_OR_RETURN(const Shape shape, FilledShape(input, tensor.ElementCount()));
    request_.inputs.push_back({input.name, tensor.Reshaped(shape)});
    return Status::Ok();
  }

  const ModelVersion& version_;
  JsonTensorOptions options_;
  size_t size_ = 0;
  InferenceRequest request_;
};

// One element as a value, several as a flat array.
Status AppendOutput(std::string& out, const Value& value, NonFiniteNumbers& non_finite) {
  if (!value.is_tensor()) return AppendNested(out, value, non_finite);
  const int64_t elements = value.tensor().ElementCount();
  const Shape flat = elements == 1 ? Shape() : Shape({elements});
  return AppendNested(out, value.tensor().Reshaped(flat), non_finite);
}

Result<std::string> WriteAnswer(const InferenceResponse& response, NonFiniteNumbers& non_finite) {
  std::string out = "{";
  if (!response.id.empty()) {
    out += "\"id\":";
    AppendJsonString(out, response.id);
    out += ',';
  }
  out += "\"model_name\":";
  AppendJsonString(out, response.model);
  out += ",\"model_version\":";
  AppendJsonString(out, response.version);
  for (const NamedValue& output : response.outputs) {
    out += ',';
    AppendJsonString(out, output.name);
    out += ':';
    ONNXD_RETURN_IF_ERROR(AppendOutput(out, output.value, non_finite)
                              .WithContext(StrCat("output '", output.name, "'")));
  }
  return out + "}";
}

// One event for each piece of the text that a model writes, as it comes; of others, that answer
// once, one event.
void StreamAnswer(InferenceService& service, std::shared_ptr<const ModelVersion> version,
                  InferenceRequest inference, ClientQuota::Ticket ticket, HttpRespond respond) {
  const auto events = std::make_shared<EventStream>(std::move(respond));
  const auto send = [&service, events,
                     metrics = version->metrics](const InferenceResponse& answer) {
    NonFiniteNumbers non_finite{service.json().non_finite};
    const auto text = WriteAnswer(answer, non_finite);
    metrics->CountNonFinite(non_finite.count);
    if (!text.ok()) return events->Fail(ErrorResponse(text.status()));
    events->Send(*text);
  };
  const bool in_pieces = version->writes_texts && HasOneText(inference);
  if (in_pieces) {
    const InferenceResponse empty{version->model, version->version, inference.id, {}};
    inference.generation.on_text = [empty, send, name = version->outputs[0].name](TextPiece piece) {
      if (piece.text.empty()) return;
      InferenceResponse answer = empty;
      answer.outputs.push_back({name, Tensor::Of<std::string>(Shape{1}, {std::move(piece.text)})});
      send(answer);
    };
  }
  service.Infer(version, std::move(inference), Protocol::kHttp,
                [in_pieces, events, send,
                 ticket = std::move(ticket)](const Result<InferenceResponse>& result) {
                  if (!result.ok()) return events->Fail(ErrorResponse(result.status()));
                  const bool was_sent = in_pieces && events->begun();
                  if (!was_sent) send(*result);
                  events->End();
                });
}

}  // namespace

void HandleGenerate(InferenceService& service, const std::string& model, const std::string& version,
                    GenerateForm form, HttpRequest request, HttpRespond respond) {
  const auto fail = [&](const Status& status) {
    service.NoteUnrouted(Protocol::kHttp, status, request.origin);
    respond(ErrorResponse(status));
  };
  const auto found = service.FindModel(model, version, RoutePoint(request.origin.route_key),
                                       [](const std::string&) { return false; });
  if (!found.ok()) return fail(found.status());
  auto inference = GenerateBody(**found, service.json().max_depth).Read(request.body);
  if (!inference.ok()) {
    InferenceService::NoteRefusal(**found);
    return fail(inference.status());
  }
  const Status timeout = ApplyTimeout(request, *inference);
  if (!timeout.ok()) return fail(timeout);
  auto ticket = service.EnterClient(**found, request.origin);
  if (!ticket.ok()) return respond(OverQuotaResponse(ticket.status()));
  inference->origin = std::move(request.origin);
  if (form == GenerateForm::kStream) {
    return StreamAnswer(service, *found, *std::move(inference), *std::move(ticket),
                        std::move(respond));
  }
  service.Infer(*found, *std::move(inference), Protocol::kHttp,
                [&service, metrics = (*found)->metrics, ticket = *std::move(ticket),
                 respond = std::move(respond)](Result<InferenceResponse> result) {
                  if (!result.ok()) return respond(ErrorResponse(result.status()));
                  NonFiniteNumbers non_finite{service.json().non_finite};
                  auto text = WriteAnswer(*result, non_finite);
                  metrics->CountNonFinite(non_finite.count);
                  if (!text.ok()) return respond(ErrorResponse(text.status()));
                  HttpResponse response;
                  response.body = *std::move(text);
                  AddServerTiming(*result, response);
                  respond(std::move(response));
                });
}

}  // namespace onnxd
