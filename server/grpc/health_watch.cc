#include "server/grpc/health_watch.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr const char* kServices[] = {"", "inference.GRPCInferenceService",
                                     "onnxd.v1.PredictionService"};

class HealthWatch : public GrpcStreamHandler {
 public:
  HealthWatch(const InferenceService& service, std::shared_ptr<GrpcWriter> writer)
      : service_(service), writer_(std::move(writer)) {}

  void OnMessage(std::string message) override {
    if (request_) return writer_->Finish(InvalidArgument("Watch takes one request"));
    if (!request_.emplace().ParseFromString(message)) {
      return writer_->Finish(InvalidArgument("the request is no valid protobuf message"));
    }
    OnTick();
  }

  void OnEnd() override {
    if (!request_) writer_->Finish(InvalidArgument("Watch takes one request"));
  }

  void OnTick() override {
    if (!request_) return;
    HealthCheckResponse response;
    const auto checked = CheckHealth(service_, *request_);
    response.set_status(checked.ok() ? checked->status() : HealthCheckResponse::SERVICE_UNKNOWN);
    if (response.status() == told_) return;
    told_ = response.status();
    writer_->Send(response.SerializeAsString());
  }

 private:
  const InferenceService& service_;
  const std::shared_ptr<GrpcWriter> writer_;
  std::optional<HealthCheckRequest> request_;
  std::optional<HealthCheckResponse::ServingStatus> told_;
};

}  // namespace

Result<HealthCheckResponse> CheckHealth(const InferenceService& service,
                                        const HealthCheckRequest& request) {
  const std::string& name = request.service();
  if (std::find(std::begin(kServices), std::end(kServices), name) == std::end(kServices)) {
    return NotFound(StrCat("unknown service '", name.substr(0, 128), "'"));
  }
  HealthCheckResponse response;
  response.set_status(service.Ready() ? HealthCheckResponse::SERVING
                                      : HealthCheckResponse::NOT_SERVING);
  return response;
}

std::unique_ptr<GrpcStreamHandler> OpenHealthWatch(const InferenceService& service,
                                                   std::shared_ptr<GrpcWriter> writer) {
  return std::make_unique<HealthWatch>(service, std::move(writer));
}

}  // namespace onnxd
