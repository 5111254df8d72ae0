#include "server/http/cross_origin.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "server/config/server_options.h"

namespace onnxd {
namespace {

constexpr const char* kMethods = "GET, HEAD, POST";
constexpr const char* kRequestHeaders =
    "Authorization, Content-Encoding, Content-Type, Inference-Header-Content-Length, traceparent, "
    "tracestate, X-API-Key, X-Request-Id, X-Request-Timeout-Ms, X-Route-Key";
constexpr const char* kResponseHeaders =
    "Inference-Header-Content-Length, Retry-After, Server-Timing, X-Request-Id";
constexpr const char* kPreflightSeconds = "600";

// A Host without its port.
std::string_view NameOf(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end == host.npos ? host : host.substr(1, end - 1);
  }
  return host.substr(0, host.find(':'));
}

bool IsThisMachine(std::string_view host) {
  const std::string name(NameOf(host));
  return IsLoopback(name) || name.ends_with(".localhost");
}

}  // namespace

CrossOrigin::CrossOrigin(const std::string& origins) {
  for (size_t begin = 0; begin < origins.size();) {
    const size_t end = std::min(origins.find(',', begin), origins.size());
    std::string origin = origins.substr(begin, end - begin);
    all_ = all_ || origin == "*";
    origins_.insert(std::move(origin));
    begin = end + 1;
  }
}

bool CrossOrigin::Allows(const std::string& origin) const {
  return all_ || origins_.contains(origin);
}

std::optional<HttpResponse> CrossOrigin::Preflight(const HttpRequest& request) const {
  const std::string* origin = request.Header("Origin");
  if (request.method != "OPTIONS" || origin == nullptr ||
      request.Header("Access-Control-Request-Method") == nullptr) {
    return std::nullopt;
  }
  HttpResponse response;
  response.status = 204;
  if (Allows(*origin)) {
    response.headers.emplace_back("Access-Control-Allow-Methods", kMethods);
    response.headers.emplace_back("Access-Control-Allow-Headers", kRequestHeaders);
    response.headers.emplace_back("Access-Control-Max-Age", kPreflightSeconds);
  }
  return response;
}

void CrossOrigin::Allow(const std::string& origin, HttpResponse& response) const {
  if (!all_ && origins_.empty()) return;
  if (!all_) response.headers.emplace_back("Vary", "Origin");
  if (origin.empty() || !Allows(origin)) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", all_ ? "*" : origin);
  response.headers.emplace_back("Access-Control-Expose-Headers", kResponseHeaders);
}

Status CrossOrigin::CheckAdmin(const HttpRequest& request, bool without_keys) const {
  const std::string* origin = request.Header("Origin");
  const std::string* host = request.Header("Host");
  const std::string name = host == nullptr ? "" : *host;
  if (origin != nullptr && *origin != StrCat("http://", name) &&
      *origin != StrCat("https://", name) && !origins_.contains(*origin)) {
    return PermissionDenied(
        "a page of another origin may not change the server (server.cors_origins)");
  }
  if (without_keys && !name.empty() && request.origin.client != "unix" && !IsThisMachine(name)) {
    return PermissionDenied("without keys, the server is changed as localhost alone");
  }
  return Status::Ok();
}

}  // namespace onnxd
