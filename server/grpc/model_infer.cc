#include "server/grpc/model_infer.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/str_cat.h"
#include "server/grpc/infer_response.h"
#include "server/grpc/message_arena.h"
#include "server/grpc/message_scan.h"
#include "server/grpc/parse_message.h"
#include "server/grpc/tensor_messages.h"
#include "server/inference/route_point.h"

namespace onnxd {
namespace {

Status ReadSequenceId(const inference::InferParameter& parameter, SequenceControl::Id& id) {
  using Parameter = inference::InferParameter;
  switch (parameter.parameter_choice_case()) {
    case Parameter::kUint64Param:
      id.number = parameter.uint64_param();
      return Status::Ok();
    case Parameter::kInt64Param:
      if (parameter.int64_param() < 0) break;
      id.number = static_cast<uint64_t>(parameter.int64_param());
      return Status::Ok();
    case Parameter::kStringParam:
      id.text = parameter.string_param();
      return Status::Ok();
    default:
      break;
  }
  return InvalidArgument("sequence_id must be a positive whole number or a string");
}

Result<double> NumberOf(const std::string& name, const inference::InferParameter& parameter) {
  if (parameter.has_double_param()) return parameter.double_param();
  if (parameter.has_int64_param()) return static_cast<double>(parameter.int64_param());
  if (parameter.has_uint64_param()) return static_cast<double>(parameter.uint64_param());
  return InvalidArgument(StrCat(name, " must be a number"));
}

// The names of server/http/generation_parameters.h, but for logit_bias; others have no meaning.
Status ReadGenerationParameter(const std::string& name, const inference::InferParameter& parameter,
                               GenerationOptions& options) {
  auto* const number = NumberOption(options, name);
  auto* const count = CountOption(options, name);
  if (number != nullptr || count != nullptr || name == "seed") {
    ONNXD_ASSIGN_OR_RETURN(const double value, NumberOf(name, parameter));
    const bool is_whole = value == std::floor(value) && std::abs(value) < 0x1p53;
    if (number == nullptr && !is_whole) {
      return InvalidArgument(StrCat(name, " must be a whole number"));
    }
    if (number != nullptr) *number = value;
    if (count != nullptr) *count = static_cast<int64_t>(value);
    if (name == "seed") options.seed = static_cast<uint64_t>(static_cast<int64_t>(value));
  } else if (bool* const flag = SwitchOption(options, name)) {
    if (!parameter.has_bool_param()) return InvalidArgument(StrCat(name, " must be true or false"));
    *flag = parameter.bool_param();
  } else if (name == "stop") {
    if (!parameter.has_string_param()) return InvalidArgument("stop must be a string");
    return AddStop(parameter.string_param(), options);
  }
  return Status::Ok();
}

// The protocol's parameters: timeout, microseconds; priority; those of sequences; and where the
// model writes texts those of generation.
Status ApplyParameters(const inference::ModelInferRequest& request, bool writes_texts,
                       InferenceRequest& out) {
  for (const auto& [name, parameter] : request.parameters()) {
    if (writes_texts) {
      ONNXD_RETURN_IF_ERROR(ReadGenerationParameter(name, parameter, out.generation));
    }
    if (name == "sequence_id") {
      ONNXD_RETURN_IF_ERROR(ReadSequenceId(parameter, out.sequence.id));
    }
    if (name == "sequence_start") out.sequence.starts = parameter.bool_param();
    if (name == "sequence_end") out.sequence.ends = parameter.bool_param();
    if (name != "timeout" && name != "priority") continue;
    const int64_t number =
        parameter.has_uint64_param()
            ? static_cast<int64_t>(std::min<uint64_t>(parameter.uint64_param(), uint64_t{1} << 62))
            : parameter.int64_param();
    if (number < 0) return InvalidArgument(StrCat(name, " is negative"));
    if (name == "priority") out.priority = number;
    if (name == "priority" || number == 0) continue;
    out.timeout = std::min(std::chrono::microseconds(number),
                           std::chrono::microseconds(InferenceRequest::kMostTimeout));
  }
  return Status::Ok();
}

// A request with the model version it goes to.
struct Routed {
  std::shared_ptr<const ModelVersion> version;
  InferenceRequest request;
};

// Computes what was routed; `done` gets the result, or why there is none.
template <typename Done>
void Infer(InferenceService& service, const GrpcCall& call, Result<Routed>&& routed, Done done) {
  if (!routed.ok()) {
    service.NoteUnrouted(Protocol::kGrpc, routed.status(), call.origin);
    return done(routed.status());
  }
  auto ticket = service.EnterClient(*routed->version, call.origin);
  if (!ticket.ok()) return done(ticket.status());
  service.Infer(std::move(routed->version), std::move(routed->request), Protocol::kGrpc,
                [ticket = *std::move(ticket), done = std::move(done)](
                    Result<InferenceResponse> result) { done(std::move(result)); });
}

// One that the call's key is for; what it is not for may be there or not.
Result<std::shared_ptr<const ModelVersion>> FindModel(InferenceService& service,
                                                      const GrpcCall& call,
                                                      const std::string& model,
                                                      const std::string& version) {
  const auto known = [&call](const std::string& name) { return call.grant->CheckModel(name).ok(); };
  if (!model.empty()) ONNXD_RETURN_IF_ERROR(call.grant->CheckModel(model));
  ONNXD_ASSIGN_OR_RETURN(
      auto found, service.FindModel(model, version, RoutePoint(call.origin.route_key), known));
  ONNXD_RETURN_IF_ERROR(call.grant->CheckModel(found->model));
  return found;
}

Result<Routed> RouteModelInfer(InferenceService& service, const GrpcCall& call,
                               const inference::ModelInferRequest& message) {
  Routed routed;
  ONNXD_ASSIGN_OR_RETURN(routed.version,
                         FindModel(service, call, message.model_name(), message.model_version()));
  routed.request.id = message.id();
  routed.request.origin = call.origin;
  routed.request.deadline = call.deadline;
  ONNXD_RETURN_IF_ERROR(ApplyParameters(message, routed.version->writes_texts, routed.request));
  ONNXD_ASSIGN_OR_RETURN(routed.request.inputs, InputsOf(message, service.shared_memory()));
  for (const auto& output : message.outputs()) routed.request.outputs.push_back(output.name());
  return routed;
}

Result<Routed> RoutePredict(InferenceService& service, const GrpcCall& call) {
  ONNXD_RETURN_IF_ERROR(ScanPredictRequest(call.message));
  ONNXD_ASSIGN_OR_RETURN(const auto message, ParseMessage<v1::PredictRequest>(call.message));
  Routed routed;
  ONNXD_ASSIGN_OR_RETURN(routed.version,
                         FindModel(service, call, message.model(), message.version()));
  routed.request.origin = call.origin;
  routed.request.deadline = call.deadline;
  const auto& signature = routed.version->inputs;
  for (const v1::Tensor& input : message.inputs()) {
    const auto found = std::find_if(signature.begin(), signature.end(),
                                    [&](const auto& s) { return s.name == input.name(); });
    const DataType type = found == signature.end() ? DataType::kFloat : found->type.element;
    auto tensor = TensorOf(input, type);
    if (!tensor.ok()) {
      InferenceService::NoteRefusal(*routed.version);
      return tensor.status();
    }
    routed.request.inputs.push_back({input.name(), *std::move(tensor)});
  }
  for (const std::string& output : message.outputs()) routed.request.outputs.push_back(output);
  return routed;
}

Result<std::string> WritePredict(const InferenceResponse& result) {
  v1::PredictResponse response;
  response.set_model(result.model);
  response.set_model_version(result.version);
  response.set_inference_time_ms(
      std::chrono::duration<double, std::milli>(result.compute_time).count());
  for (const NamedValue& output : result.outputs) {
    ONNXD_RETURN_IF_ERROR(ToMessage(output, *response.add_outputs()));
  }
  return response.SerializeAsString();
}

// What turns pieces of a text into responses.
std::function<void(TextPiece)> PartWriter(const ModelVersion& version, const std::string& id,
                                          const SharedMemory& memory, ModelInferPart part) {
  const InferenceResponse empty{version.model, version.version, id, {}};
  return [empty, name = version.outputs[0].name, &memory, part = std::move(part)](TextPiece piece) {
    if (piece.text.empty()) return;
    InferenceResponse written = empty;
    written.outputs.push_back({name, Tensor::Of<std::string>(Shape{1}, {std::move(piece.text)})});
    NonFiniteNumbers none;
    auto response = WriteInferResponse(written, {}, memory, none);
    if (response.ok()) part(*std::move(response));
  };
}

}  // namespace

void ModelInfer(InferenceService& service, const GrpcCall& call, ModelInferDone done,
                ModelInferPart part) {
  MessageArena arena;
  auto& message = arena.Create<inference::ModelInferRequest>();
  std::vector<OutputForm> forms;
  Result<Routed> routed = [&]() -> Result<Routed> {
    ONNXD_RETURN_IF_ERROR(ScanInferRequest(call.message));
    ONNXD_RETURN_IF_ERROR(ParseMessage(call.message, message));
    ONNXD_ASSIGN_OR_RETURN(forms, OutputFormsOf(message));
    return RouteModelInfer(service, call, message);
  }();
  auto metrics = routed.ok() ? routed->version->metrics : nullptr;
  const bool in_parts = part != nullptr && routed.ok() && routed->version->writes_texts &&
                        HasOneText(routed->request);
  if (in_parts) {
    routed->request.generation.on_text =
        PartWriter(*routed->version, message.id(), service.shared_memory(), std::move(part));
  }
  Infer(service, call, std::move(routed),
        [&service, done = std::move(done), id = message.id(), metrics = std::move(metrics),
         forms = std::move(forms)](Result<InferenceResponse> result) {
          if (!result.ok()) return done(result.status(), id);
          NonFiniteNumbers non_finite{service.json().non_finite};
          auto response = WriteInferResponse(*result, forms, service.shared_memory(), non_finite);
          metrics->CountNonFinite(non_finite.count);
          done(std::move(response), id);
        });
}

void Predict(InferenceService& service, const GrpcCall& call, GrpcRespond respond) {
  Infer(service, call, RoutePredict(service, call),
        [respond = std::move(respond)](Result<InferenceResponse> result) {
          if (!result.ok()) return respond(result.status());
          respond(WritePredict(*result));
        });
}

}  // namespace onnxd
