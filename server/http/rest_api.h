// The REST API: paths and JSON <-> InferenceService.
//
//   GET  /  /docs  /openapi.json                       where to go, what to send
//   GET  /health  /health/live  /health/ready          for people and load balancers
//   POST /predict  /predict/{model}                    JSON in, JSON out
//   GET  /ping, POST /invocations                      SageMaker's, Vertex AI's and Azure ML's
//   GET  /v2  /v2/health/live  /v2/health/ready        Open Inference Protocol
//   GET  /v2/models/{model}[/versions/{version}][/ready]
//   POST /v2/models/{model}[/versions/{version}]/infer, /generate, /generate_stream
//   GET  /v2/models/{model}[/versions/{version}]/config  as Triton's ModelConfig
//   POST /v2/repository/index  /v2/repository/models/{model}/load  .../unload
//   POST /v2/config/reload                             as SIGHUP
//   GET  /v2/models[/{model}[/versions/{version}]]/stats  sums of requests and runs
//   GET, POST /v2/logging, /v2/systemsharedmemory/...  Triton's extensions of these names
//   GET  /v1/models[/{model}[/versions/{version}|/labels/{label}][/metadata]]  TensorFlow Serving's
//   POST /v1/embeddings, /v1/completions, /v1/chat/completions  OpenAI's
//   POST /v1/models/{model}[...]:predict               its rows and columns; KServe's v1, too
//   GET  /metrics                                      Prometheus
//   GET  /debug/requests                               the slowest and the failed ones of late
//
// Every answer has the header X-Request-Id, the client's or one made up.
#pragma once

#include <optional>

#include "server/access/access_gate.h"
#include "server/config/server_options.h"
#include "server/documents/load_report.h"
#include "server/http/cross_origin.h"
#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// Any thread. Must outlive every request it was handed.
class RestApi {
 public:
  RestApi(InferenceService& service, const AccessGate& gate, const ServerOptions::Listen& options)
      : service_(service),
        gate_(gate),
        triton_metrics_(options.metrics_compat == "triton"),
        load_reporter_(service, options),
        predict_route_(options.predict_route),
        health_route_(options.health_route),
        cross_origin_(options.cors_origins) {}

  void Handle(HttpRequest request, HttpRespond respond) const;
  // Of a request whose body has not been read: why it will not be.
  std::optional<HttpResponse> Refuse(const HttpRequest& request) const;
  // The metrics port: /metrics and the health paths alone, for everybody who reaches it.
  void HandleMetricsPort(HttpRequest request, HttpRespond respond) const;

 private:
  Result<std::vector<std::string>> SegmentsOf(const HttpRequest& request) const;
  TraceContext TraceOf(const HttpRequest& request) const;
  void Route(HttpRequest request, HttpRespond respond) const;
  Result<std::shared_ptr<const Grant>> Admit(const std::vector<std::string>& path,
                                             const HttpRequest& request) const;
  std::optional<HttpResponse> FixedPath(const std::string& path) const;
  HttpResponse Metrics() const;
  HttpRespond WithLoadReport(const HttpRequest& request, HttpRespond respond) const;

  InferenceService& service_;
  const AccessGate& gate_;
  const bool triton_metrics_;
  const LoadReporter load_reporter_;
  const std::string predict_route_, health_route_;
  const CrossOrigin cross_origin_;
};

// The HTTP status of a canonical code.
int HttpStatusOf(StatusCode code);
HttpResponse ErrorResponse(const Status& status);
// 429: the client has too many requests of its own.
HttpResponse OverQuotaResponse(const Status& status);

}  // namespace onnxd
