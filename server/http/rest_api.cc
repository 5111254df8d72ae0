#include "server/http/rest_api.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <optional>

#include "runtime/base/str_cat.h"
#include "server/documents/docs_page.h"
#include "server/documents/openapi.h"
#include "server/documents/request_log_json.h"
#include "server/documents/triton_metrics.h"
#include "server/http/completions.h"
#include "server/http/content_type.h"
#include "server/http/embeddings.h"
#include "server/http/extension_api.h"
#include "server/http/invocations.h"
#include "server/http/open_inference.h"
#include "server/http/predict.h"
#include "server/http/repository_api.h"
#include "server/http/rollout_api.h"
#include "server/http/tensorflow_serving.h"
#include "server/http/url.h"
#include "server/inference/json_writer.h"
#include "server/inference/request_id.h"

namespace onnxd {
namespace {

HttpResponse Json(std::string body, int status = 200) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

HttpResponse MethodNotAllowed(std::string_view allowed) {
  HttpResponse response = ErrorResponse(405, StrCat("method not allowed here; use ", allowed));
  response.headers.emplace_back("Allow", allowed);
  return response;
}

HttpResponse Index() {
  return Json(
      R"({"name":"onnxd","version":")" ONNXD_VERSION
      R"(","docs":"/docs","openapi":"/openapi.json","predict":"POST /predict/{model}","open_inference_protocol":"/v2","health":"/health","metrics":"/metrics"})");
}

HttpResponse Health(const InferenceService& service) {
  const bool ready = service.Ready();
  const bool loaded = !service.ModelNames().empty();
  return Json(StrCat(R"({"status":")", ready ? "healthy" : "unhealthy", R"(","model_loaded":)",
                     loaded, "}"),
              ready ? 200 : 503);
}

HttpResponse Docs() {
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.headers.emplace_back("Content-Security-Policy", DocsPagePolicy());
  response.body = DocsPage();
  return response;
}

HttpResponse Flag(std::string_view name, bool value) {
  return Json(StrCat("{\"", name, "\":", value, "}"), value ? 200 : 503);
}

// {"changed": ["section.key", ..]}
void ReloadConfig(InferenceService& service, HttpRespond respond) {
  service.Reload([respond = std::move(respond)](const Result<std::vector<std::string>>& changed) {
    if (!changed.ok()) return respond(ErrorResponse(changed.status()));
    std::string quoted;
    for (const std::string& key : *changed)
      quoted += StrCat(quoted.empty() ? "\"" : ",\"", key, "\"");
    respond(Json(StrCat("{\"changed\":[", quoted, "]}")));
  });
}

}  // namespace

HttpResponse RestApi::Metrics() const {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = service_.Metrics();
  if (!triton_metrics_) return response;
  if (const auto versions = service_.Versions("", ""); versions.ok()) {
    response.body += TritonMetrics(*versions);
  }
  return response;
}

// GET and HEAD paths that both ports answer; nullopt for all others.
std::optional<HttpResponse> RestApi::FixedPath(const std::string& path) const {
  if (path == "health") return Health(service_);
  if (path == "health/live" || path == "v2/health/live") return Flag("live", service_.Live());
  if (path == "health/ready" || path == "v2/health/ready") return Flag("ready", service_.Ready());
  if (path == "ping") return Flag("ready", service_.Ready());
  if (path == "metrics") return Metrics();
  return std::nullopt;
}

int HttpStatusOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
    case StatusCode::kFailedPrecondition:
      return 400;
    case StatusCode::kUnauthenticated:
      return 401;
    case StatusCode::kPermissionDenied:
      return 403;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kAlreadyExists:
    case StatusCode::kAborted:
      return 409;
    case StatusCode::kResourceExhausted:
      return 413;
    case StatusCode::kCancelled:
      return 499;
    case StatusCode::kUnimplemented:
      return 501;
    case StatusCode::kUnavailable:
      return 503;
    case StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

HttpResponse ErrorResponse(const Status& status) {
  HttpResponse response = ErrorResponse(HttpStatusOf(status.code()), status.message());
  if (status.code() == StatusCode::kUnavailable) response.headers.emplace_back("Retry-After", "1");
  if (status.code() == StatusCode::kUnauthenticated) {
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  }
  return response;
}

HttpResponse OverQuotaResponse(const Status& status) {
  HttpResponse response = ErrorResponse(429, status.message());
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

namespace {

std::string_view KeyOf(const HttpRequest& request) {
  const std::string* authorization = request.Header("Authorization");
  const std::string* api_key = request.Header("X-API-Key");
  return KeyIn(authorization == nullptr ? std::string_view() : *authorization,
               api_key == nullptr ? std::string_view() : *api_key);
}

}  // namespace

// The configured paths stand for ours. With the one for predictions, Vertex AI's header names a
// path of the server's own.
Result<std::vector<std::string>> RestApi::SegmentsOf(const HttpRequest& request) const {
  const auto path = std::string_view(request.target).substr(0, request.target.find('?'));
  if (!health_route_.empty() && path == health_route_) return std::vector<std::string>{"ping"};
  if (predict_route_.empty() || path != predict_route_) return PathSegments(request.target);
  const std::string* const other = request.Header("X-Vertex-Ai-Triton-Redirect");
  if (other == nullptr) return std::vector<std::string>{"invocations"};
  return PathSegments(other->starts_with("/") ? *other : "/" + *other);
}

// What is not in the table of routes is not there.
Result<std::shared_ptr<const Grant>> RestApi::Admit(const std::vector<std::string>& path,
                                                    const HttpRequest& request) const {
  const auto route = RouteOfPath(path);
  if (!route) return NotFound("no such path");
  if (request.CountHeaders("Authorization") > 1 || request.CountHeaders("X-API-Key") > 1) {
    return InvalidArgument("a key is given twice");
  }
  auto grant = gate_.Admit(route->role, KeyOf(request), request.certificate);
  Status admitted = grant.ok() ? (*grant)->CheckScope(route->scope, route->model) : grant.status();
  if (admitted.ok() && route->role == Role::kAdmin) {
    admitted = cross_origin_.CheckAdmin(request, !gate_.has_keys());
  }
  if (admitted.ok()) return grant;
  service_.metrics().CountAccessRefusal(Protocol::kHttp, admitted.code());
  return admitted;
}

std::optional<HttpResponse> RestApi::Refuse(const HttpRequest& request) const {
  const auto path = SegmentsOf(request);
  if (!path.ok()) return ErrorResponse(path.status());
  const auto route = RouteOfPath(*path);
  if (!route) return ErrorResponse(NotFound("no such path"));
  const Status status = gate_.Check(route->role, KeyOf(request), request.certificate);
  if (status.ok()) return std::nullopt;
  service_.metrics().CountAccessRefusal(Protocol::kHttp, status.code());
  return ErrorResponse(status);
}

// Several traceparents name no trace.
TraceContext RestApi::TraceOf(const HttpRequest& request) const {
  const std::string* parent = request.Header("traceparent");
  const std::string* state = request.Header("tracestate");
  const bool several =
      parent != nullptr &&
      1 < std::count_if(request.headers.begin(), request.headers.end(), [](const auto& header) {
        return boost::beast::iequals(header.first, "traceparent");
      });
  return service_.tracer().Begin(parent == nullptr || several ? "" : *parent,
                                 state == nullptr ? "" : *state);
}

void RestApi::Handle(HttpRequest request, HttpRespond respond) const {
  const std::string* id = request.Header("X-Request-Id");
  request.origin.id = RequestId(id == nullptr ? "" : *id);
  const std::string* origin = request.Header("Origin");
  request.origin.trace = TraceOf(request);
  respond = [this, id = request.origin.id, trace = ReturnedTraceParent(request.origin.trace),
             origin = origin == nullptr ? "" : *origin,
             respond = std::move(respond)](HttpResponse response) {
    response.headers.emplace_back("X-Request-Id", id);
    if (!trace.empty()) response.headers.emplace_back("traceparent", trace);
    cross_origin_.Allow(origin, response);
    respond(std::move(response));
  };
  if (auto preflight = cross_origin_.Preflight(request)) return respond(std::move(*preflight));
  Route(std::move(request), std::move(respond));
}

// What is answered well tells the load as well.
HttpRespond RestApi::WithLoadReport(const HttpRequest& request, HttpRespond respond) const {
  const std::string* header = request.Header("endpoint-load-metrics-format");
  return [this, wanted = header == nullptr ? "" : *header,
          respond = std::move(respond)](HttpResponse response) {
    if (response.status == 200) {
      auto report = load_reporter_.For(wanted, LoadReportFormat::kText);
      if (report) response.headers.emplace_back(report->name, std::move(report->value));
    }
    respond(std::move(response));
  };
}

void RestApi::Route(HttpRequest request, HttpRespond respond) const {
  const auto segments = SegmentsOf(request);
  if (!segments.ok()) return respond(ErrorResponse(segments.status()));
  auto admitted = Admit(*segments, request);
  if (!admitted.ok()) {
    const Status& status = admitted.status();
    return respond(status.code() == StatusCode::kResourceExhausted ? OverQuotaResponse(status)
                                                                   : ErrorResponse(status));
  }
  // Until the answer is there.
  respond = [grant = *admitted, respond = std::move(respond)](HttpResponse response) {
    respond(std::move(response));
  };
  request.grant = *std::move(admitted);
  const std::string* route_key = request.Header("X-Route-Key");
  request.origin.api_key = request.grant->key_name();
  request.origin.route_key = route_key == nullptr ? request.grant->key_name() : *route_key;
  const bool get = request.method == "GET" || request.method == "HEAD";
  const bool post = request.method == "POST";
  const std::vector<std::string>& path = *segments;
  const std::string joined = StrJoin(path, "/");
  if (get) {
    if (path.empty()) return respond(Index());
    if (auto response = FixedPath(joined)) return respond(std::move(*response));
  } else if (path.empty() || FixedPath(joined)) {
    return respond(MethodNotAllowed("GET, HEAD"));
  }
  if (post) {
    const Status readable = CheckContentType(request);
    if (!readable.ok()) return respond(ErrorResponse(415, readable.message()));
  }
  if (post) respond = WithLoadReport(request, std::move(respond));
  if (joined == "invocations") {
    if (!post) return respond(MethodNotAllowed("POST"));
    return HandleInvocations(service_, std::move(request), std::move(respond));
  }
  if (!path.empty() && path[0] == "predict" && path.size() <= 2) {
    if (!post) return respond(MethodNotAllowed("POST"));
    return HandlePredict(service_, path.size() == 2 ? path[1] : "", std::move(request),
                         std::move(respond));
  }
  if (joined == "docs" || joined == "openapi.json") {
    if (!get) return respond(MethodNotAllowed("GET, HEAD"));
    if (joined == "docs") return respond(Docs());
    return respond(Json(OpenApiJson(service_, [&request](const std::string& model) {
      return request.grant->CheckModel(model).ok();
    })));
  }
  if (joined == "debug/requests") {
    if (!get) return respond(MethodNotAllowed("GET, HEAD"));
    return respond(Json(RequestLogJson(service_.request_log())));
  }
  if (joined == "v1/embeddings") {
    if (!post) return respond(MethodNotAllowed("POST"));
    return HandleEmbeddings(service_, std::move(request), std::move(respond));
  }
  if (joined == "v1/completions" || joined == "v1/chat/completions") {
    if (!post) return respond(MethodNotAllowed("POST"));
    const auto form = joined == "v1/completions" ? CompletionForm::kText : CompletionForm::kChat;
    return HandleCompletions(service_, form, std::move(request), std::move(respond));
  }
  if (const auto route = TensorFlowServingRouteOf(path)) {
    const bool predict = route->verb == TensorFlowServingRoute::Verb::kPredict;
    if (predict ? !post : !get) return respond(MethodNotAllowed(predict ? "POST" : "GET, HEAD"));
    return HandleTensorFlowServing(service_, *route, std::move(request), std::move(respond));
  }
  if (!path.empty() && path[0] == "v2") {
    if (joined == "v2/config/reload") {
      if (!post) return respond(MethodNotAllowed("POST"));
      return ReloadConfig(service_, std::move(respond));
    }
    if (IsExtensionPath(path)) return respond(HandleExtension(service_, path, request));
    if (const auto rollout = RolloutRouteOf(path)) {
      const bool shows = rollout->verb == RolloutRoute::Verb::kShow;
      if (shows ? !get : !post) return respond(MethodNotAllowed(shows ? "GET, HEAD" : "POST"));
      return HandleRollout(service_, *rollout, request, std::move(respond));
    }
    if (IsRepositoryPath(path)) {
      if (!post) return respond(MethodNotAllowed("POST"));
      return HandleRepository(service_, path, std::move(request), std::move(respond));
    }
    const auto route = OpenInferenceRouteOf(path);
    if (!route) return respond(ErrorResponse(404, "no such path"));
    const bool predicts = route->predicts();
    if (predicts ? !post : !get) return respond(MethodNotAllowed(predicts ? "POST" : "GET, HEAD"));
    return HandleOpenInference(service_, *route, std::move(request), std::move(respond));
  }
  respond(ErrorResponse(404, "no such path"));
}

void RestApi::HandleMetricsPort(HttpRequest request, HttpRespond respond) const {
  const auto segments = SegmentsOf(request);
  if (!segments.ok()) return respond(ErrorResponse(segments.status()));
  auto response = FixedPath(StrJoin(*segments, "/"));
  if (!response) return respond(ErrorResponse(404, "no such path"));
  if (request.method != "GET" && request.method != "HEAD") {
    return respond(MethodNotAllowed("GET, HEAD"));
  }
  respond(std::move(*response));
}

}  // namespace onnxd
