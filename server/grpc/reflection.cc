#include "server/grpc/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>

#include "proto/health.pb.h"
#include "proto/onnxd.pb.h"
#include "proto/open_inference.pb.h"
#include "proto/reflection.pb.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using Request = grpc::reflection::v1::ServerReflectionRequest;
using Response = grpc::reflection::v1::ServerReflectionResponse;

constexpr const char* kServices[] = {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                     "grpc.reflection.v1alpha.ServerReflection",
                                     "inference.GRPCInferenceService",
                                     "onnxd.v1.PredictionService"};

// The file that an unknown name would be refused in; descriptors are made on first use.
void LinkFiles() {
  inference::ModelInferRequest::descriptor();
  v1::PredictRequest::descriptor();
  grpc::health::v1::HealthCheckRequest::descriptor();
  Request::descriptor();
}

void AddWithImports(const FileDescriptor& file, std::set<const FileDescriptor*>& seen,
                    grpc::reflection::v1::FileDescriptorResponse& out) {
  if (!seen.insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  out.add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) {
    AddWithImports(*file.dependency(i), seen, out);
  }
}

void AnswerFile(const FileDescriptor* file, std::string_view name, Response& response) {
  if (file == nullptr) {
    auto& error = *response.mutable_error_response();
    error.set_error_code(static_cast<int>(StatusCode::kNotFound));
    error.set_error_message(StrCat("unknown: ", name.substr(0, 256)));
    return;
  }
  std::set<const FileDescriptor*> seen;
  AddWithImports(*file, seen, *response.mutable_file_descriptor_response());
}

Response AnswerTo(const Request& request) {
  LinkFiles();
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kListServices:
      for (const char* service : kServices) {
        response.mutable_list_services_response()->add_service()->set_name(service);
      }
      break;
    case Request::kFileByFilename:
      AnswerFile(pool.FindFileByName(request.file_by_filename()), request.file_by_filename(),
                 response);
      break;
    case Request::kFileContainingSymbol:
      AnswerFile(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                 request.file_containing_symbol(), response);
      break;
    case Request::kAllExtensionNumbersOfType:
      response.mutable_all_extension_numbers_response()->set_base_type_name(
          request.all_extension_numbers_of_type());
      break;
    default:
      AnswerFile(nullptr, "this request", response);
  }
  return response;
}

class Reflection : public GrpcStreamHandler {
 public:
  explicit Reflection(std::shared_ptr<GrpcWriter> writer) : writer_(std::move(writer)) {}
  void OnMessage(std::string message) override {
    Request request;
    if (!request.ParseFromString(message)) {
      return writer_->Finish(InvalidArgument("the request is no valid protobuf message"));
    }
    writer_->Send(AnswerTo(request).SerializeAsString());
  }
  void OnEnd() override { writer_->Finish(Status::Ok()); }

 private:
  const std::shared_ptr<GrpcWriter> writer_;
};

}  // namespace

std::unique_ptr<GrpcStreamHandler> OpenReflection(std::shared_ptr<GrpcWriter> writer) {
  return std::make_unique<Reflection>(std::move(writer));
}

}  // namespace onnxd
