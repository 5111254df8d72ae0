// The C++ clients that users have: grpc++ stubs and cpp-httplib, against a running daemon that
// serves the embedded models. Usage: cpp_clients HOST HTTP_PORT GRPC_PORT. Exit code 0 when all
// answers are right.
#include <grpcpp/grpcpp.h>
#include <httplib.h>

#include <cstdio>
#include <cstdlib>

#include "proto/health.grpc.pb.h"
#include "proto/onnxd.grpc.pb.h"
#include "proto/open_inference.grpc.pb.h"

namespace {

constexpr float kIris[] = {5.1f, 3.5f, 1.4f, 0.2f};

void Expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::exit(1);
}

void CheckOpenInference(const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = inference::GRPCInferenceService::NewStub(channel);
  inference::ModelInferRequest request;
  request.set_model_name("iris_forest");
  auto* input = request.add_inputs();
  input->set_name("measurements");
  input->set_datatype("FP32");
  input->add_shape(1);
  input->add_shape(4);
  request.add_raw_input_contents(std::string(reinterpret_cast<const char*>(kIris), sizeof(kIris)));
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    Expect(stub->ModelInfer(&context, request, &response).ok(), "ModelInfer");
    Expect(response.outputs(0).name() == "label", "ModelInfer's first output");
    Expect(response.raw_output_contents(0) == std::string(8, '\0'), "the label of a setosa");
  }
  grpc::ClientContext context;
  inference::ServerReadyResponse ready;
  Expect(stub->ServerReady(&context, {}, &ready).ok() && ready.ready(), "ServerReady");
}

void CheckPrediction(const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = onnxd::v1::PredictionService::NewStub(channel);
  onnxd::v1::PredictRequest request;
  auto* input = request.add_inputs();
  input->set_name("measurements");
  input->add_shape(1);
  input->add_shape(4);
  for (const float value : kIris) input->add_float_values(static_cast<double>(value));
  grpc::ClientContext context;
  onnxd::v1::PredictResponse response;
  Expect(stub->Predict(&context, request, &response).ok(), "Predict");
  Expect(response.outputs(0).int_values(0) == 0, "Predict's label");
  request.mutable_inputs(0)->set_name("nope");
  grpc::ClientContext again;
  const grpc::Status status = stub->Predict(&again, request, &response);
  Expect(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT, "the status of a bad request");
}

void CheckHealth(const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = grpc::health::v1::Health::NewStub(channel);
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse response;
  Expect(stub->Check(&context, {}, &response).ok(), "Check");
  Expect(response.status() == grpc::health::v1::HealthCheckResponse::SERVING, "Check's status");
}

void CheckRest(const std::string& host, int port) {
  httplib::Client client(host, port);
  client.set_keep_alive(true);
  for (int i = 0; i < 100; ++i) {
    const auto answer =
        client.Post("/predict", R"({"input": [5.1, 3.5, 1.4, 0.2]})", "application/json");
    Expect(answer && answer->status == 200, "POST /predict");
    Expect(answer->body.find("\"label\":[0]") != std::string::npos, "the label over REST");
  }
  const auto health = client.Get("/health");
  Expect(health && health->body == R"({"status":"healthy","model_loaded":true})", "GET /health");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string host = argv[1];
  const auto channel =
      grpc::CreateChannel(host + ":" + argv[3], grpc::InsecureChannelCredentials());
  CheckOpenInference(channel);
  CheckPrediction(channel);
  CheckHealth(channel);
  CheckRest(host, std::atoi(argv[2]));
  std::printf("all answers are right\n");
  return 0;
}
