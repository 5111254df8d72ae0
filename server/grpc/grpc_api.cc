#include "server/grpc/grpc_api.h"

#include <google/protobuf/util/json_util.h>

#include <map>

#include "proto/open_inference.pb.h"
#include "runtime/base/str_cat.h"
#include "server/documents/log_settings.h"
#include "server/documents/model_config.h"
#include "server/documents/model_statistics_json.h"
#include "server/documents/server_extensions.h"
#include "server/documents/trace_settings.h"
#include "server/grpc/health_watch.h"
#include "server/grpc/infer_stream.h"
#include "server/grpc/model_infer.h"
#include "server/grpc/parse_message.h"
#include "server/grpc/reflection.h"
#include "server/inference/data_type_name.h"

namespace onnxd {
namespace {

template <typename Request, typename Handle>
Result<std::string> Answer(const GrpcCall& call, Handle handle) {
  ONNXD_ASSIGN_OR_RETURN(const Request request, ParseMessage<Request>(call.message));
  auto response = handle(request);
  if (!response.ok()) return response.status();
  return response->SerializeAsString();
}

// Clients always send it; models here do not depend on each other.

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

Result<inference::RepositoryIndexResponse> IndexOf(const InferenceService& service,
                                                   const Grant& grant, bool ready_only) {
  inference::RepositoryIndexResponse response;
  for (const ModelRegistry::Entry& entry : service.Index()) {
    if (ready_only && entry.state != ModelRegistry::State::kReady) continue;
    if (!grant.CheckModel(entry.model).ok()) continue;
    auto& model = *response.add_models();
    model.set_name(entry.model);
    model.set_version(entry.version);
    model.set_state(ModelRegistry::StateName(entry.state));
    model.set_reason(entry.reason);
  }
  return response;
}

// Loads or unloads a model.
template <typename Request, typename Response, bool load>
void Control(InferenceService& service, const GrpcCall& call, GrpcRespond respond) {
  const auto request = ParseMessage<Request>(call.message);
  if (!request.ok()) return respond(request.status());
  ModelManager::Command command{load, request->model_name()};
  for (const auto& [name, parameter] : request->parameters()) {
    if (!load && name == "unload_dependents") {
      command.unload_dependents = parameter.bool_param();
    } else if (load && name == "config" && parameter.has_string_param()) {
      command.config = parameter.string_param();
    } else {
      return respond(
          InvalidArgument(StrCat("parameter '", name.substr(0, 64), "' is not supported")));
    }
  }
  service.Control(std::move(command), [respond = std::move(respond)](const Status& status) {
    if (!status.ok()) return respond(status);
    respond(Response().SerializeAsString());
  });
}

// A message of a document's JSON: its members are the message's fields.
template <typename Response>
Result<Response> FromJson(const std::string& json) {
  Response response;
  const auto read = google::protobuf::util::JsonStringToMessage(json, &response);
  if (!read.ok())
    return Internal(StrCat("a document is no message: ", std::string(read.message())));
  return response;
}

Result<inference::ModelConfigResponse> ConfigOf(const InferenceService& service,
                                                const inference::ModelConfigRequest& request) {
  ONNXD_ASSIGN_OR_RETURN(const auto config, service.Config(request.name(), request.version()));
  return FromJson<inference::ModelConfigResponse>(
      StrCat("{\"config\":", ModelConfigJson(*config.version, config.batching), "}"));
}

Result<inference::ModelStatisticsResponse> StatisticsOf(
    const InferenceService& service, const inference::ModelStatisticsRequest& request) {
  ONNXD_ASSIGN_OR_RETURN(const auto versions, service.Versions(request.name(), request.version()));
  return FromJson<inference::ModelStatisticsResponse>(ModelStatisticsJson(versions));
}

Result<inference::ServerMetadataResponse> DescribeServer() {
  inference::ServerMetadataResponse response;
  response.set_name("onnxd");
  response.set_version(ONNXD_VERSION);
  for (const std::string_view name : kServerExtensions) response.add_extensions(std::string(name));
  return response;
}

Result<inference::TraceSettingResponse> ChangeTracing(
    InferenceService& service, const inference::TraceSettingRequest& request) {
  const std::string& model = request.model_name();
  if (!model.empty()) ONNXD_RETURN_IF_ERROR(service.Versions(model, "").status());
  TraceSettingChanges changes;
  for (const auto& [name, setting] : request.settings()) {
    changes[name].emplace(setting.value().begin(), setting.value().end());
  }
  if (!changes.empty()) {
    ONNXD_RETURN_IF_ERROR(ApplyTraceSettings(service.tracer(), model, changes));
  }
  inference::TraceSettingResponse response;
  for (const auto& [name, values] : CurrentTraceSettings(service.tracer(), model)) {
    auto& setting = (*response.mutable_settings())[name];
    for (const std::string& value : values) setting.add_value(value);
  }
  return response;
}

Result<inference::LogSettingsResponse> ChangeLog(const inference::LogSettingsRequest& request) {
  LogSettings changes;
  for (const auto& [name, value] : request.settings()) {
    if (value.has_bool_param()) {
      changes[name] = value.bool_param();
    } else if (value.has_uint32_param()) {
      changes[name] = int64_t{value.uint32_param()};
    } else {
      changes[name] = value.string_param();
    }
  }
  if (!changes.empty()) ONNXD_RETURN_IF_ERROR(ApplyLogSettings(changes));
  inference::LogSettingsResponse response;
  for (const auto& [name, value] : CurrentLogSettings()) {
    auto& setting = (*response.mutable_settings())[name];
    if (const bool* flag = std::get_if<bool>(&value)) setting.set_bool_param(*flag);
    if (const int64_t* number = std::get_if<int64_t>(&value)) {
      setting.set_uint32_param(static_cast<uint32_t>(*number));
    }
    if (const std::string* text = std::get_if<std::string>(&value)) setting.set_string_param(*text);
  }
  return response;
}

Result<inference::SystemSharedMemoryStatusResponse> RegionsOf(
    InferenceService& service, const inference::SystemSharedMemoryStatusRequest& request) {
  ONNXD_ASSIGN_OR_RETURN(const auto regions, service.shared_memory().Regions(request.name()));
  inference::SystemSharedMemoryStatusResponse response;
  for (const auto& [name, region] : regions) {
    auto& status = (*response.mutable_regions())[name];
    status.set_name(name);
    status.set_key(region.key);
    status.set_offset(region.offset);
    status.set_byte_size(region.bytes);
  }
  return response;
}

// How a method answers a call.
using Method = void (*)(InferenceService&, const GrpcCall&, GrpcRespond);

template <typename Request, auto kAnswer>
void Unary(InferenceService& service, const GrpcCall& call, GrpcRespond respond) {
  respond(Answer<Request>(call, [&](const Request& request) { return kAnswer(service, request); }));
}

const std::map<std::string_view, Method>& Methods() {
  using namespace inference;  // NOLINT: names of messages only
  static const std::map<std::string_view, Method> methods = {
      {"/onnxd.v1.PredictionService/Predict", Predict},
      {"/grpc.health.v1.Health/Check", Unary<grpc::health::v1::HealthCheckRequest, CheckHealth>},
      {"/inference.GRPCInferenceService/ModelInfer",
       [](InferenceService& service, const GrpcCall& call, GrpcRespond respond) {
         onnxd::ModelInfer(
             service, call,
             [respond = std::move(respond)](Result<std::string> answer, const std::string&) {
               respond(std::move(answer));
             });
       }},
      {"/inference.GRPCInferenceService/ServerLive",
       Unary<ServerLiveRequest,
             [](InferenceService& service, const auto&) {
               ServerLiveResponse response;
               response.set_live(service.Live());
               return Result<ServerLiveResponse>(response);
             }>},
      {"/inference.GRPCInferenceService/ServerReady",
       Unary<ServerReadyRequest,
             [](InferenceService& service, const auto&) {
               ServerReadyResponse response;
               response.set_ready(service.Ready());
               return Result<ServerReadyResponse>(response);
             }>},
      {"/inference.GRPCInferenceService/ModelReady",
       Unary<ModelReadyRequest,
             [](InferenceService& service, const ModelReadyRequest& request) {
               ModelReadyResponse response;
               response.set_ready(service.ModelReady(request.name(), request.version()));
               return Result<ModelReadyResponse>(response);
             }>},
      {"/inference.GRPCInferenceService/ServerMetadata",
       Unary<ServerMetadataRequest,
             [](InferenceService&, const auto&) { return DescribeServer(); }>},
      {"/inference.GRPCInferenceService/ModelMetadata", Unary<ModelMetadataRequest, DescribeModel>},
      {"/inference.GRPCInferenceService/ModelConfig", Unary<ModelConfigRequest, ConfigOf>},
      {"/inference.GRPCInferenceService/ModelStatistics",
       Unary<ModelStatisticsRequest, StatisticsOf>},
      {"/inference.GRPCInferenceService/RepositoryIndex",
       [](InferenceService& service, const GrpcCall& call, GrpcRespond respond) {
         respond(Answer<RepositoryIndexRequest>(call, [&](const RepositoryIndexRequest& request) {
           return IndexOf(service, *call.grant, request.ready());
         }));
       }},
      {"/inference.GRPCInferenceService/RepositoryModelLoad",
       Control<RepositoryModelLoadRequest, RepositoryModelLoadResponse, true>},
      {"/inference.GRPCInferenceService/RepositoryModelUnload",
       Control<RepositoryModelUnloadRequest, RepositoryModelUnloadResponse, false>},
      {"/inference.GRPCInferenceService/SystemSharedMemoryStatus",
       Unary<SystemSharedMemoryStatusRequest, RegionsOf>},
      {"/inference.GRPCInferenceService/SystemSharedMemoryRegister",
       Unary<SystemSharedMemoryRegisterRequest,
             [](InferenceService& service, const SystemSharedMemoryRegisterRequest& request)
                 -> Result<SystemSharedMemoryRegisterResponse> {
               ONNXD_RETURN_IF_ERROR(service.shared_memory().Register(
                   {request.name(), request.key(), request.offset(), request.byte_size()}));
               return SystemSharedMemoryRegisterResponse();
             }>},
      {"/inference.GRPCInferenceService/SystemSharedMemoryUnregister",
       Unary<SystemSharedMemoryUnregisterRequest,
             [](InferenceService& service, const SystemSharedMemoryUnregisterRequest& request)
                 -> Result<SystemSharedMemoryUnregisterResponse> {
               ONNXD_RETURN_IF_ERROR(service.shared_memory().Unregister(request.name()));
               return SystemSharedMemoryUnregisterResponse();
             }>},
      // No model here computes on a GPU: there are no regions, and none can be registered.
      {"/inference.GRPCInferenceService/CudaSharedMemoryStatus",
       Unary<CudaSharedMemoryStatusRequest,
             [](InferenceService&, const auto&) {
               return Result<CudaSharedMemoryStatusResponse>(CudaSharedMemoryStatusResponse());
             }>},
      {"/inference.GRPCInferenceService/CudaSharedMemoryRegister",
       Unary<CudaSharedMemoryRegisterRequest,
             [](InferenceService&, const auto&) {
               return Result<CudaSharedMemoryRegisterResponse>(
                   Unimplemented("CUDA shared memory is not supported"));
             }>},
      {"/inference.GRPCInferenceService/CudaSharedMemoryUnregister",
       Unary<CudaSharedMemoryUnregisterRequest,
             [](InferenceService&, const auto&) {
               return Result<CudaSharedMemoryUnregisterResponse>(
                   CudaSharedMemoryUnregisterResponse());
             }>},
      {"/inference.GRPCInferenceService/TraceSetting",
       Unary<TraceSettingRequest,
             [](InferenceService& service, const TraceSettingRequest& request) {
               return ChangeTracing(service, request);
             }>},
      {"/inference.GRPCInferenceService/LogSettings",
       Unary<LogSettingsRequest,
             [](InferenceService&, const LogSettingsRequest& request) {
               return ChangeLog(request);
             }>},
  };
  return methods;
}

using OpenMethod = std::unique_ptr<GrpcStreamHandler> (*)(InferenceService&, const GrpcCall&,
                                                          std::shared_ptr<GrpcWriter>);

const std::map<std::string_view, OpenMethod>& StreamingMethods() {
  static constexpr OpenMethod kReflection = [](InferenceService&, const GrpcCall&,
                                               std::shared_ptr<GrpcWriter> writer) {
    return OpenReflection(std::move(writer));
  };
  static const std::map<std::string_view, OpenMethod> methods = {
      {"/inference.GRPCInferenceService/ModelStreamInfer", OpenInferStream},
      {"/grpc.health.v1.Health/Watch",
       [](InferenceService& service, const GrpcCall&, std::shared_ptr<GrpcWriter> writer) {
         return OpenHealthWatch(service, std::move(writer));
       }},
      {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", kReflection},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kReflection},
  };
  return methods;
}

template <typename Request>
Result<std::string> ModelIn(const std::string& message) {
  ONNXD_ASSIGN_OR_RETURN(const Request request, ParseMessage<Request>(message));
  if constexpr (requires { request.model_name(); }) {
    return request.model_name();
  } else {
    return request.name();
  }
}

// The model that a call of Scope::kModel is about; empty for all.
Result<std::string> ModelOf(const GrpcCall& call) {
  using namespace inference;
  static const std::map<std::string_view, Result<std::string> (*)(const std::string&)> methods = {
      {"/inference.GRPCInferenceService/ModelReady", ModelIn<ModelReadyRequest>},
      {"/inference.GRPCInferenceService/ModelMetadata", ModelIn<ModelMetadataRequest>},
      {"/inference.GRPCInferenceService/ModelConfig", ModelIn<ModelConfigRequest>},
      {"/inference.GRPCInferenceService/ModelStatistics", ModelIn<ModelStatisticsRequest>},
      {"/inference.GRPCInferenceService/TraceSetting", ModelIn<TraceSettingRequest>},
      {"/inference.GRPCInferenceService/RepositoryModelLoad", ModelIn<RepositoryModelLoadRequest>},
      {"/inference.GRPCInferenceService/RepositoryModelUnload",
       ModelIn<RepositoryModelUnloadRequest>},
  };
  const auto method = methods.find(call.path);
  return method == methods.end() ? std::string() : method->second(call.message);
}

Status CheckScope(const GrpcCall& call, Scope scope) {
  if (scope != Scope::kModel || call.grant->for_all_models()) {
    return call.grant->CheckScope(scope, "");
  }
  ONNXD_ASSIGN_OR_RETURN(const std::string model, ModelOf(call));
  return call.grant->CheckScope(scope, model);
}

}  // namespace

Status GrpcApi::Admit(GrpcCall& call) const {
  // What is not in the table of routes is not there.
  const auto route = RouteOfMethod(call.path);
  if (!route) return Unimplemented(StrCat("unknown method ", call.path.substr(0, 256)));
  auto grant = gate_.Admit(route->role, KeyIn(call.authorization, call.api_key), call.certificate);
  Status admitted = grant.status();
  if (grant.ok()) {
    call.grant = *std::move(grant);
    call.origin.api_key = call.grant->key_name();
    if (call.origin.route_key.empty()) call.origin.route_key = call.grant->key_name();
    admitted = CheckScope(call, route->scope);
  }
  if (!admitted.ok()) service_.metrics().CountAccessRefusal(Protocol::kGrpc, admitted.code());
  return admitted;
}

Status GrpcApi::Check(const GrpcCall& call) const {
  const auto route = RouteOfMethod(call.path);
  if (!route) return Unimplemented(StrCat("unknown method ", call.path.substr(0, 256)));
  const Status status =
      gate_.Check(route->role, KeyIn(call.authorization, call.api_key), call.certificate);
  if (!status.ok()) service_.metrics().CountAccessRefusal(Protocol::kGrpc, status.code());
  return status;
}

void GrpcApi::Handle(GrpcCall call, GrpcRespond respond) const {
  const Status admitted = Admit(call);
  if (!admitted.ok()) return respond(admitted);
  // Until the answer is there.
  respond = [grant = call.grant, respond = std::move(respond)](Result<std::string> answer) {
    respond(std::move(answer));
  };
  const auto method = Methods().find(call.path);
  if (method == Methods().end()) {
    return respond(Unimplemented(StrCat("unknown method ", call.path.substr(0, 256))));
  }
  method->second(service_, call, std::move(respond));
}

bool GrpcApi::IsStreaming(std::string_view path) { return StreamingMethods().count(path) > 0; }

Result<std::unique_ptr<GrpcStreamHandler>> GrpcApi::OpenStream(
    const GrpcCall& call, std::shared_ptr<GrpcWriter> writer) const {
  GrpcCall admitted = call;
  ONNXD_RETURN_IF_ERROR(Admit(admitted));
  return StreamingMethods().at(call.path)(service_, admitted, std::move(writer));
}

}  // namespace onnxd
