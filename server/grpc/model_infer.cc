#include "server/grpc/model_infer.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "server/grpc/message_scan.h"
#include "server/grpc/parse_message.h"
#include "server/grpc/tensor_messages.h"

namespace onnxd {
namespace {

// The protocol's parameters: timeout, microseconds; priority.
Status ApplyParameters(const inference::ModelInferRequest& request, InferenceRequest& out) {
  for (const auto& [name, parameter] : request.parameters()) {
    if (name == "sequence_id") return Unimplemented("sequence requests are not supported");
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

// Computes what was routed and answers with the message that `write` makes of the result; a failure
// of either becomes the call's status.
template <typename Respond, typename Write>
void Infer(InferenceService& service, const GrpcCall& call, Result<Routed> routed, Respond respond,
           Write write) {
  if (!routed.ok()) {
    service.NoteUnrouted(Protocol::kGrpc, routed.status(), call.origin);
    return respond(routed.status());
  }
  auto ticket = service.EnterClient(call.origin.client);
  if (!ticket.ok()) return respond(ticket.status());
  service.Infer(std::move(routed->version), std::move(routed->request), Protocol::kGrpc,
                [ticket = *std::move(ticket), respond = std::move(respond),
                 write = std::move(write)](Result<InferenceResponse> result) {
                  if (!result.ok()) return respond(result.status());
                  respond(write(*result));
                });
}

Result<Routed> RouteModelInfer(InferenceService& service, const GrpcCall& call,
                               const inference::ModelInferRequest& message) {
  Routed routed;
  ONNXD_ASSIGN_OR_RETURN(routed.version,
                         service.FindModel(message.model_name(), message.model_version()));
  ONNXD_RETURN_IF_ERROR(call.grant->CheckModel(routed.version->model));
  routed.request.id = message.id();
  routed.request.origin = call.origin;
  routed.request.deadline = call.deadline;
  ONNXD_RETURN_IF_ERROR(ApplyParameters(message, routed.request));
  ONNXD_ASSIGN_OR_RETURN(routed.request.inputs, InputsOf(message, service.shared_memory()));
  for (const auto& output : message.outputs()) routed.request.outputs.push_back(output.name());
  return routed;
}

Result<Routed> RoutePredict(InferenceService& service, const GrpcCall& call) {
  ONNXD_RETURN_IF_ERROR(ScanPredictRequest(call.message));
  ONNXD_ASSIGN_OR_RETURN(const auto message, ParseMessage<v1::PredictRequest>(call.message));
  Routed routed;
  ONNXD_ASSIGN_OR_RETURN(routed.version, service.FindModel(message.model(), message.version()));
  ONNXD_RETURN_IF_ERROR(call.grant->CheckModel(routed.version->model));
  routed.request.origin = call.origin;
  routed.request.deadline = call.deadline;
  const auto& signature = routed.version->inputs;
  for (const v1::Tensor& input : message.inputs()) {
    const auto found = std::find_if(signature.begin(), signature.end(),
                                    [&](const auto& s) { return s.name == input.name(); });
    const DataType type = found == signature.end() ? DataType::kFloat : found->type.element;
    ONNXD_ASSIGN_OR_RETURN(Tensor tensor, TensorOf(input, type));
    routed.request.inputs.push_back({input.name(), std::move(tensor)});
  }
  for (const std::string& output : message.outputs()) routed.request.outputs.push_back(output);
  return routed;
}

}  // namespace

void ModelInfer(
    InferenceService& service, const GrpcCall& call,
    std::function<void(Result<inference::ModelInferResponse>, const std::string& id)> done) {
  auto message = [&]() -> Result<inference::ModelInferRequest> {
    ONNXD_RETURN_IF_ERROR(ScanInferRequest(call.message));
    return ParseMessage<inference::ModelInferRequest>(call.message);
  }();
  std::string id = message.ok() ? message->id() : "";
  Result<Routed> routed = message.status();
  std::vector<OutputForm> forms;
  if (message.ok()) {
    auto read = OutputFormsOf(*message);
    routed = read.ok() ? RouteModelInfer(service, call, *message) : read.status();
    if (read.ok()) forms = *std::move(read);
  }
  const auto metrics = routed.ok() ? routed->version->metrics : nullptr;
  Infer(
      service, call, std::move(routed),
      [done = std::move(done), id](Result<inference::ModelInferResponse> answer) {
        done(std::move(answer), id);
      },
      [&service, metrics, forms = std::move(forms)](
          const InferenceResponse& result) -> Result<inference::ModelInferResponse> {
        inference::ModelInferResponse response;
        response.set_model_name(result.model);
        response.set_model_version(result.version);
        response.set_id(result.id);
        NonFiniteNumbers non_finite{service.json().non_finite};
        const Status added =
            AddOutputs(result.outputs, forms, service.shared_memory(), non_finite, response);
        metrics->CountNonFinite(non_finite.count);
        if (!added.ok()) return added;
        return response;
      });
}

void Predict(InferenceService& service, const GrpcCall& call, GrpcRespond respond) {
  Infer(service, call, RoutePredict(service, call), std::move(respond),
        [](const InferenceResponse& result) -> Result<std::string> {
          v1::PredictResponse response;
          response.set_model(result.model);
          response.set_model_version(result.version);
          response.set_inference_time_ms(
              std::chrono::duration<double, std::milli>(result.compute_time).count());
          for (const NamedValue& output : result.outputs) {
            ONNXD_RETURN_IF_ERROR(ToMessage(output, *response.add_outputs()));
          }
          return response.SerializeAsString();
        });
}

}  // namespace onnxd
