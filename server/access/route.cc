#include "server/access/route.h"

#include <algorithm>

namespace onnxd {
namespace {

struct RestRoute {
  std::string_view path;  // "*" stands for one segment, the first of them for a model
  Route route;
};

// The first that matches counts.
constexpr RestRoute kRestRoutes[] = {
    {"", {Role::kNobody, Scope::kAny}},
    {"health", {Role::kNobody, Scope::kAny}},
    {"health/live", {Role::kNobody, Scope::kAny}},
    {"health/ready", {Role::kNobody, Scope::kAny}},
    {"v2/health/live", {Role::kNobody, Scope::kAny}},
    {"v2/health/ready", {Role::kNobody, Scope::kAny}},
    {"docs", {Role::kNobody, Scope::kAny}},
    {"openapi.json", {Role::kPredict, Scope::kAny}},
    {"ping", {Role::kNobody, Scope::kAny}},
    {"invocations", {Role::kPredict, Scope::kAny}},
    {"predict", {Role::kPredict, Scope::kAny}},
    {"predict/*", {Role::kPredict, Scope::kModel}},
    {"v2", {Role::kPredict, Scope::kAny}},
    {"v2/models/stats", {Role::kRead, Scope::kServer}},
    {"v2/models/*", {Role::kPredict, Scope::kModel}},
    {"v2/models/*/ready", {Role::kPredict, Scope::kModel}},
    {"v2/models/*/infer", {Role::kPredict, Scope::kModel}},
    {"v2/models/*/generate", {Role::kPredict, Scope::kModel}},
    {"v2/models/*/generate_stream", {Role::kPredict, Scope::kModel}},
    {"v2/models/*/config", {Role::kRead, Scope::kModel}},
    {"v2/models/*/stats", {Role::kRead, Scope::kModel}},
    {"v2/models/*/rollout", {Role::kRead, Scope::kModel}},
    {"v2/models/*/versions/*", {Role::kPredict, Scope::kModel}},
    {"v2/models/*/versions/*/ready", {Role::kPredict, Scope::kModel}},
    {"v2/models/*/versions/*/infer", {Role::kPredict, Scope::kModel}},
    {"v2/models/*/versions/*/generate", {Role::kPredict, Scope::kModel}},
    {"v2/models/*/versions/*/generate_stream", {Role::kPredict, Scope::kModel}},
    {"v2/models/*/versions/*/config", {Role::kRead, Scope::kModel}},
    {"v2/models/*/versions/*/stats", {Role::kRead, Scope::kModel}},
    {"v2/models/*/trace/setting", {Role::kAdmin, Scope::kModel}},
    {"v2/models/*/versions/*/trace/setting", {Role::kAdmin, Scope::kModel}},
    {"v2/trace/setting", {Role::kAdmin, Scope::kServer}},
    {"v2/logging", {Role::kAdmin, Scope::kServer}},
    {"v2/systemsharedmemory/status", {Role::kRead, Scope::kServer}},
    {"v2/systemsharedmemory/region/*/status", {Role::kRead, Scope::kServer}},
    {"v2/systemsharedmemory/region/*/register", {Role::kAdmin, Scope::kServer}},
    {"v2/systemsharedmemory/region/*/unregister", {Role::kAdmin, Scope::kServer}},
    {"v2/systemsharedmemory/unregister", {Role::kAdmin, Scope::kServer}},
    {"v2/cudasharedmemory/status", {Role::kRead, Scope::kServer}},
    {"v2/cudasharedmemory/region/*/status", {Role::kRead, Scope::kServer}},
    {"v2/cudasharedmemory/region/*/register", {Role::kAdmin, Scope::kServer}},
    {"v2/cudasharedmemory/region/*/unregister", {Role::kAdmin, Scope::kServer}},
    {"v2/cudasharedmemory/unregister", {Role::kAdmin, Scope::kServer}},
    {"v1/embeddings", {Role::kPredict, Scope::kAny}},
    {"v1/completions", {Role::kPredict, Scope::kAny}},
    {"v1/chat/completions", {Role::kPredict, Scope::kAny}},
    {"v1/models", {Role::kPredict, Scope::kAny}},
    {"v1/models/*", {Role::kPredict, Scope::kModel}},
    {"v1/models/*/metadata", {Role::kPredict, Scope::kModel}},
    {"v1/models/*/:predict", {Role::kPredict, Scope::kModel}},
    {"v1/models/*/versions/*", {Role::kPredict, Scope::kModel}},
    {"v1/models/*/versions/*/metadata", {Role::kPredict, Scope::kModel}},
    {"v1/models/*/versions/*/:predict", {Role::kPredict, Scope::kModel}},
    {"v1/models/*/labels/*", {Role::kPredict, Scope::kModel}},
    {"v1/models/*/labels/*/metadata", {Role::kPredict, Scope::kModel}},
    {"v1/models/*/labels/*/:predict", {Role::kPredict, Scope::kModel}},
    {"metrics", {Role::kRead, Scope::kServer}},
    {"debug/requests", {Role::kAdmin, Scope::kServer}},
    {"v2/repository/index", {Role::kRead, Scope::kAny}},
    {"v2/repository/models/*/load", {Role::kAdmin, Scope::kModel}},
    {"v2/repository/models/*/unload", {Role::kAdmin, Scope::kModel}},
    {"v2/repository/models/*/rollout", {Role::kAdmin, Scope::kModel}},
    {"v2/repository/models/*/rollback", {Role::kAdmin, Scope::kModel}},
    {"v2/repository/models/*/release", {Role::kAdmin, Scope::kModel}},
    {"v2/config/reload", {Role::kAdmin, Scope::kServer}},
};

struct GrpcRoute {
  std::string_view method;
  Route route;
};

constexpr GrpcRoute kGrpcRoutes[] = {
    {"/grpc.health.v1.Health/Check", {Role::kNobody, Scope::kAny}},
    {"/grpc.health.v1.Health/Watch", {Role::kNobody, Scope::kAny}},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", {Role::kPredict, Scope::kAny}},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
     {Role::kPredict, Scope::kAny}},
    {"/inference.GRPCInferenceService/ServerLive", {Role::kNobody, Scope::kAny}},
    {"/inference.GRPCInferenceService/ServerReady", {Role::kNobody, Scope::kAny}},
    {"/onnxd.v1.PredictionService/Predict", {Role::kPredict, Scope::kAny}},
    {"/inference.GRPCInferenceService/ModelInfer", {Role::kPredict, Scope::kAny}},
    {"/inference.GRPCInferenceService/ModelStreamInfer", {Role::kPredict, Scope::kAny}},
    {"/inference.GRPCInferenceService/ModelReady", {Role::kPredict, Scope::kModel}},
    {"/inference.GRPCInferenceService/ModelMetadata", {Role::kPredict, Scope::kModel}},
    {"/inference.GRPCInferenceService/ServerMetadata", {Role::kPredict, Scope::kAny}},
    {"/inference.GRPCInferenceService/ModelConfig", {Role::kRead, Scope::kModel}},
    {"/inference.GRPCInferenceService/ModelStatistics", {Role::kRead, Scope::kModel}},
    {"/inference.GRPCInferenceService/SystemSharedMemoryStatus", {Role::kRead, Scope::kServer}},
    {"/inference.GRPCInferenceService/SystemSharedMemoryRegister", {Role::kAdmin, Scope::kServer}},
    {"/inference.GRPCInferenceService/SystemSharedMemoryUnregister",
     {Role::kAdmin, Scope::kServer}},
    {"/inference.GRPCInferenceService/CudaSharedMemoryStatus", {Role::kRead, Scope::kServer}},
    {"/inference.GRPCInferenceService/CudaSharedMemoryRegister", {Role::kAdmin, Scope::kServer}},
    {"/inference.GRPCInferenceService/CudaSharedMemoryUnregister", {Role::kAdmin, Scope::kServer}},
    {"/inference.GRPCInferenceService/TraceSetting", {Role::kAdmin, Scope::kModel}},
    {"/inference.GRPCInferenceService/LogSettings", {Role::kAdmin, Scope::kServer}},
    {"/inference.GRPCInferenceService/RepositoryIndex", {Role::kRead, Scope::kAny}},
    {"/inference.GRPCInferenceService/RepositoryModelLoad", {Role::kAdmin, Scope::kModel}},
    {"/inference.GRPCInferenceService/RepositoryModelUnload", {Role::kAdmin, Scope::kModel}},
};

bool Matches(std::string_view path, const std::vector<std::string>& segments) {
  for (const std::string& segment : segments) {
    if (path.empty()) return false;
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view expected = path.substr(0, end);
    if (expected != "*" && expected != segment) return false;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return path.empty();
}

size_t FirstStar(std::string_view path) {
  const std::string_view before = path.substr(0, path.find('*'));
  return static_cast<size_t>(std::count(before.begin(), before.end(), '/'));
}

}  // namespace

std::optional<Route> RouteOfPath(const std::vector<std::string>& segments) {
  for (const RestRoute& rest : kRestRoutes) {
    if (!Matches(rest.path, segments)) continue;
    Route route = rest.route;
    if (route.scope == Scope::kModel) route.model = segments[FirstStar(rest.path)];
    return route;
  }
  return std::nullopt;
}

std::optional<Route> RouteOfMethod(std::string_view method) {
  for (const GrpcRoute& grpc : kGrpcRoutes) {
    if (grpc.method == method) return grpc.route;
  }
  return std::nullopt;
}

}  // namespace onnxd
