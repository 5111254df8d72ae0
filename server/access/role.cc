#include "server/access/role.h"

#include <algorithm>

namespace onnxd {
namespace {

struct RestRoute {
  std::string_view path;  // "*" stands for one segment
  Role role;
};

constexpr RestRoute kRestRoutes[] = {
    {"", Role::kNobody},
    {"health", Role::kNobody},
    {"health/live", Role::kNobody},
    {"health/ready", Role::kNobody},
    {"v2/health/live", Role::kNobody},
    {"v2/health/ready", Role::kNobody},
    {"docs", Role::kNobody},
    {"openapi.json", Role::kPredict},
    {"predict", Role::kPredict},
    {"predict/*", Role::kPredict},
    {"v2", Role::kPredict},
    {"v2/models/*", Role::kPredict},
    {"v2/models/*/ready", Role::kPredict},
    {"v2/models/*/infer", Role::kPredict},
    {"v2/models/*/config", Role::kRead},
    {"v2/models/*/stats", Role::kRead},
    {"v2/models/*/versions/*", Role::kPredict},
    {"v2/models/*/versions/*/ready", Role::kPredict},
    {"v2/models/*/versions/*/infer", Role::kPredict},
    {"v2/models/*/versions/*/config", Role::kRead},
    {"v2/models/*/versions/*/stats", Role::kRead},
    {"v2/models/stats", Role::kRead},
    {"v2/models/*/trace/setting", Role::kAdmin},
    {"v2/models/*/versions/*/trace/setting", Role::kAdmin},
    {"v2/trace/setting", Role::kAdmin},
    {"v2/logging", Role::kAdmin},
    {"v2/systemsharedmemory/status", Role::kRead},
    {"v2/systemsharedmemory/region/*/status", Role::kRead},
    {"v2/systemsharedmemory/region/*/register", Role::kAdmin},
    {"v2/systemsharedmemory/region/*/unregister", Role::kAdmin},
    {"v2/systemsharedmemory/unregister", Role::kAdmin},
    {"v2/cudasharedmemory/status", Role::kRead},
    {"v2/cudasharedmemory/region/*/status", Role::kRead},
    {"v2/cudasharedmemory/region/*/register", Role::kAdmin},
    {"v2/cudasharedmemory/region/*/unregister", Role::kAdmin},
    {"v2/cudasharedmemory/unregister", Role::kAdmin},
    {"metrics", Role::kRead},
    {"debug/requests", Role::kAdmin},
    {"v2/repository/index", Role::kRead},
    {"v2/repository/models/*/load", Role::kAdmin},
    {"v2/repository/models/*/unload", Role::kAdmin},
    {"v2/config/reload", Role::kAdmin},
};

struct GrpcRoute {
  std::string_view method;
  Role role;
};

constexpr GrpcRoute kGrpcRoutes[] = {
    {"/grpc.health.v1.Health/Check", Role::kNobody},
    {"/grpc.health.v1.Health/Watch", Role::kNobody},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Role::kPredict},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Role::kPredict},
    {"/inference.GRPCInferenceService/ServerLive", Role::kNobody},
    {"/inference.GRPCInferenceService/ServerReady", Role::kNobody},
    {"/onnxd.v1.PredictionService/Predict", Role::kPredict},
    {"/inference.GRPCInferenceService/ModelInfer", Role::kPredict},
    {"/inference.GRPCInferenceService/ModelStreamInfer", Role::kPredict},
    {"/inference.GRPCInferenceService/ModelReady", Role::kPredict},
    {"/inference.GRPCInferenceService/ModelMetadata", Role::kPredict},
    {"/inference.GRPCInferenceService/ServerMetadata", Role::kPredict},
    {"/inference.GRPCInferenceService/ModelConfig", Role::kRead},
    {"/inference.GRPCInferenceService/ModelStatistics", Role::kRead},
    {"/inference.GRPCInferenceService/SystemSharedMemoryStatus", Role::kRead},
    {"/inference.GRPCInferenceService/SystemSharedMemoryRegister", Role::kAdmin},
    {"/inference.GRPCInferenceService/SystemSharedMemoryUnregister", Role::kAdmin},
    {"/inference.GRPCInferenceService/CudaSharedMemoryStatus", Role::kRead},
    {"/inference.GRPCInferenceService/CudaSharedMemoryRegister", Role::kAdmin},
    {"/inference.GRPCInferenceService/CudaSharedMemoryUnregister", Role::kAdmin},
    {"/inference.GRPCInferenceService/TraceSetting", Role::kAdmin},
    {"/inference.GRPCInferenceService/LogSettings", Role::kAdmin},
    {"/inference.GRPCInferenceService/RepositoryIndex", Role::kRead},
    {"/inference.GRPCInferenceService/RepositoryModelLoad", Role::kAdmin},
    {"/inference.GRPCInferenceService/RepositoryModelUnload", Role::kAdmin},
};

constexpr std::string_view kRoleNames[] = {"nobody", "predict", "read", "admin"};

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

}  // namespace

std::string_view RoleName(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

std::optional<Role> RoleNamed(std::string_view name) {
  for (const Role role : {Role::kPredict, Role::kRead, Role::kAdmin}) {
    if (RoleName(role) == name) return role;
  }
  return std::nullopt;
}

std::optional<Role> RoleOfPath(const std::vector<std::string>& segments) {
  for (const RestRoute& route : kRestRoutes) {
    if (Matches(route.path, segments)) return route.role;
  }
  return std::nullopt;
}

std::optional<Role> RoleOfMethod(std::string_view method) {
  for (const GrpcRoute& route : kGrpcRoutes) {
    if (route.method == method) return route.role;
  }
  return std::nullopt;
}

}  // namespace onnxd
