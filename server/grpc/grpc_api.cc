#include "server/grpc/grpc_api.h"

#include <algorithm>

#include "proto/health.pb.h"
#include "runtime/base/str_cat.h"
#include "server/grpc/message_scan.h"
#include "server/grpc/tensor_messages.h"
#include "server/inference/data_type_name.h"

namespace onnxd {
namespace {

constexpr const char* kInferenceService = "inference.GRPCInferenceService";
constexpr const char* kPredictionService = "onnxd.v1.PredictionService";

template <typename Message>
Result<Message> Parse(const std::string& bytes) {
  Message message;
  if (!message.ParseFromString(bytes)) {
    return InvalidArgument("the request is no valid protobuf message");
  }
  return message;
}

template <typename Request, typename Handle>
Result<std::string> Answer(const GrpcCall& call, Handle handle) {
  ONNXD_ASSIGN_OR_RETURN(const Request request, Parse<Request>(call.message));
  auto response = handle(request);
  if (!response.ok()) return response.status();
  return response->SerializeAsString();
}

// Clients always send it; models here do not depend on each other.
constexpr std::string_view kUnloadDependents = "unload_dependents";

void AddMetadata(const std::vector<TensorMetadata>& tensors, auto add) {
  for (const TensorMetadata& tensor : tensors) {
    auto* message = add();
    message->set_name(tensor.name);
    message->set_datatype(tensor.type.is_tensor()
                              ? std::string(ProtocolTypeName(tensor.type.element))
                              : ToString(tensor.type));
    if (!tensor.type.shape) continue;
    for (const Dimension& dimension : *tensor.type.shape) message->add_shape(dimension.value);
  }
}

Result<inference::ModelMetadataResponse> DescribeModel(
    const InferenceService& service, const inference::ModelMetadataRequest& request) {
  ONNXD_ASSIGN_OR_RETURN(const auto metadata, service.Metadata(request.name(), request.version()));
  inference::ModelMetadataResponse response;
  response.set_name(metadata.name);
  for (const std::string& version : metadata.versions) response.add_versions(version);
  response.set_platform("onnx_onnxv1");
  AddMetadata(metadata.inputs, [&] { return response.add_inputs(); });
  AddMetadata(metadata.outputs, [&] { return response.add_outputs(); });
  return response;
}

Result<grpc::health::v1::HealthCheckResponse> Check(
    const InferenceService& service, const grpc::health::v1::HealthCheckRequest& request) {
  const std::string& name = request.service();
  if (!name.empty() && name != kInferenceService && name != kPredictionService) {
    return NotFound(StrCat("unknown service '", name.substr(0, 128), "'"));
  }
  grpc::health::v1::HealthCheckResponse response;
  response.set_status(service.Ready() ? grpc::health::v1::HealthCheckResponse::SERVING
                                      : grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  return response;
}

Result<inference::RepositoryIndexResponse> IndexOf(const InferenceService& service,
                                                   bool ready_only) {
  inference::RepositoryIndexResponse response;
  for (const ModelRegistry::Entry& entry : service.Index()) {
    if (ready_only && entry.state != ModelRegistry::State::kReady) continue;
    auto& model = *response.add_models();
    model.set_name(entry.model);
    model.set_version(entry.version);
    model.set_state(ModelRegistry::StateName(entry.state));
    model.set_reason(entry.reason);
  }
  return response;
}

// Loads or unloads a model.
template <typename Request, typename Response>
void Control(InferenceService& service, bool load, const GrpcCall& call, GrpcRespond respond) {
  const auto request = Parse<Request>(call.message);
  if (!request.ok()) return respond(request.status());
  for (const auto& [name, parameter] : request->parameters()) {
    if (!load && name == kUnloadDependents) continue;
    return respond(
        InvalidArgument(StrCat("parameter '", name.substr(0, 64), "' is not supported")));
  }
  service.Control(load, request->model_name(),
                  [respond = std::move(respond)](const Status& status) {
                    if (!status.ok()) return respond(status);
                    respond(Response().SerializeAsString());
                  });
}

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

}  // namespace

void GrpcApi::Handle(GrpcCall call, GrpcRespond respond) const {
  // What is not in the table of routes is not there.
  const auto role = RoleOfMethod(call.path);
  if (!role) return respond(Unimplemented(StrCat("unknown method ", call.path.substr(0, 256))));
  const Status admitted = gate_.Admit(*role, KeyIn(call.authorization, call.api_key));
  if (!admitted.ok()) {
    service_.metrics().CountAccessRefusal(Protocol::kGrpc, admitted.code());
    return respond(admitted);
  }
  const std::string prefix = StrCat("/", kInferenceService, "/");
  if (call.path == StrCat("/", kPredictionService, "/Predict")) {
    return Predict(std::move(call), std::move(respond));
  }
  if (call.path == "/grpc.health.v1.Health/Check") {
    return respond(Answer<grpc::health::v1::HealthCheckRequest>(
        call, [&](const auto& request) { return Check(service_, request); }));
  }
  if (!call.path.starts_with(prefix)) {
    return respond(Unimplemented(StrCat("unknown method ", call.path.substr(0, 256))));
  }
  const std::string method = call.path.substr(prefix.size());
  if (method == "ModelInfer") return ModelInfer(std::move(call), std::move(respond));
  if (method == "ServerLive") {
    return respond(Answer<inference::ServerLiveRequest>(call, [&](const auto&) {
      inference::ServerLiveResponse response;
      response.set_live(service_.Live());
      return Result<inference::ServerLiveResponse>(response);
    }));
  }
  if (method == "ServerReady") {
    return respond(Answer<inference::ServerReadyRequest>(call, [&](const auto&) {
      inference::ServerReadyResponse response;
      response.set_ready(service_.Ready());
      return Result<inference::ServerReadyResponse>(response);
    }));
  }
  if (method == "ModelReady") {
    return respond(Answer<inference::ModelReadyRequest>(call, [&](const auto& request) {
      inference::ModelReadyResponse response;
      response.set_ready(service_.ModelReady(request.name(), request.version()));
      return Result<inference::ModelReadyResponse>(response);
    }));
  }
  if (method == "ServerMetadata") {
    return respond(Answer<inference::ServerMetadataRequest>(call, [](const auto&) {
      inference::ServerMetadataResponse response;
      response.set_name("onnxd");
      response.set_version(ONNXD_VERSION);
      response.add_extensions("binary_tensor_data");
      return Result<inference::ServerMetadataResponse>(response);
    }));
  }
  if (method == "ModelMetadata") {
    return respond(Answer<inference::ModelMetadataRequest>(
        call, [&](const auto& request) { return DescribeModel(service_, request); }));
  }
  if (method == "RepositoryIndex") {
    return respond(Answer<inference::RepositoryIndexRequest>(
        call, [&](const auto& request) { return IndexOf(service_, request.ready()); }));
  }
  if (method == "RepositoryModelLoad") {
    return Control<inference::RepositoryModelLoadRequest, inference::RepositoryModelLoadResponse>(
        service_, true, call, std::move(respond));
  }
  if (method == "RepositoryModelUnload") {
    return Control<inference::RepositoryModelUnloadRequest,
                   inference::RepositoryModelUnloadResponse>(service_, false, call,
                                                             std::move(respond));
  }
  respond(Unimplemented(StrCat("unknown method ", call.path.substr(0, 256))));
}

namespace {

// A request with the model version it goes to.
struct Routed {
  std::shared_ptr<const ModelVersion> version;
  InferenceRequest request;
};

// Computes what was routed and answers with the message that `write` makes of the result; a failure
// of either becomes the call's status.
template <typename Write>
void Infer(InferenceService& service, const std::string& client, Result<Routed> routed,
           GrpcRespond respond, Write write) {
  if (!routed.ok()) {
    service.metrics().CountUnroutedRequest(Protocol::kGrpc, routed.status().code());
    return respond(routed.status());
  }
  auto ticket = service.EnterClient(client);
  if (!ticket.ok()) return respond(ticket.status());
  service.Infer(std::move(routed->version), std::move(routed->request), Protocol::kGrpc,
                [ticket = *std::move(ticket), respond = std::move(respond),
                 write](Result<InferenceResponse> result) {
                  if (!result.ok()) return respond(result.status());
                  auto message = write(*result);
                  if (!message.ok()) return respond(message.status());
                  respond(message->SerializeAsString());
                });
}

Result<Routed> RouteModelInfer(InferenceService& service, const GrpcCall& call) {
  ONNXD_RETURN_IF_ERROR(ScanInferRequest(call.message));
  ONNXD_ASSIGN_OR_RETURN(const auto message, Parse<inference::ModelInferRequest>(call.message));
  Routed routed;
  ONNXD_ASSIGN_OR_RETURN(routed.version,
                         service.FindModel(message.model_name(), message.model_version()));
  routed.request.id = message.id();
  routed.request.arrived = call.arrived;
  routed.request.deadline = call.deadline;
  routed.request.cancelled = call.cancelled;
  ONNXD_RETURN_IF_ERROR(ApplyParameters(message, routed.request));
  ONNXD_ASSIGN_OR_RETURN(routed.request.inputs, InputsOf(message));
  for (const auto& output : message.outputs()) routed.request.outputs.push_back(output.name());
  return routed;
}

Result<Routed> RoutePredict(InferenceService& service, const GrpcCall& call) {
  ONNXD_RETURN_IF_ERROR(ScanPredictRequest(call.message));
  ONNXD_ASSIGN_OR_RETURN(const auto message, Parse<v1::PredictRequest>(call.message));
  Routed routed;
  ONNXD_ASSIGN_OR_RETURN(routed.version, service.FindModel(message.model(), message.version()));
  routed.request.arrived = call.arrived;
  routed.request.deadline = call.deadline;
  routed.request.cancelled = call.cancelled;
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

void GrpcApi::ModelInfer(GrpcCall call, GrpcRespond respond) const {
  Infer(service_, call.client, RouteModelInfer(service_, call), std::move(respond),
        [](const InferenceResponse& result) -> Result<inference::ModelInferResponse> {
          inference::ModelInferResponse response;
          response.set_model_name(result.model);
          response.set_model_version(result.version);
          response.set_id(result.id);
          ONNXD_RETURN_IF_ERROR(AddOutputs(result.outputs, response));
          return response;
        });
}

void GrpcApi::Predict(GrpcCall call, GrpcRespond respond) const {
  Infer(service_, call.client, RoutePredict(service_, call), std::move(respond),
        [](const InferenceResponse& result) -> Result<v1::PredictResponse> {
          v1::PredictResponse response;
          response.set_model(result.model);
          response.set_model_version(result.version);
          response.set_inference_time_ms(
              std::chrono::duration<double, std::milli>(result.compute_time).count());
          for (const NamedValue& output : result.outputs) {
            ONNXD_RETURN_IF_ERROR(ToMessage(output, *response.add_outputs()));
          }
          return response;
        });
}

}  // namespace onnxd
