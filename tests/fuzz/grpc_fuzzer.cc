// Fuzz target: any bytes as what a gRPC client sends. The first one chooses: the frames of an
// HTTP/2 connection after its preface, or the length-prefixed messages of a call of one method,
// which come in DATA frames of that many bytes.
#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/served.h"

namespace onnxd {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr const char* kMethods[] = {"/inference.GRPCInferenceService/ModelInfer",
                                    "/inference.GRPCInferenceService/ModelStreamInfer",
                                    "/onnxd.v1.PredictionService/Predict",
                                    "/inference.GRPCInferenceService/ModelConfig",
                                    "/inference.GRPCInferenceService/TraceSetting",
                                    "/inference.GRPCInferenceService/LogSettings",
                                    "/inference.GRPCInferenceService/RepositoryModelLoad",
                                    "/inference.GRPCInferenceService/SystemSharedMemoryRegister",
                                    "/grpc.health.v1.Health/Check",
                                    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"};

// Source: RFC 9113, section 4.1.
std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame.append(payload);
}

// A literal field without indexing, of short strings. Source: RFC 7541, section 6.2.2.
void AppendField(std::string& block, std::string_view name, std::string_view value) {
  block += '\0';
  block += static_cast<char>(name.size());
  block.append(name);
  block += static_cast<char>(value.size());
  block.append(value);
}

std::string Call(std::string_view method, bool compressed, size_t piece, std::string_view body) {
  std::string headers;
  AppendField(headers, ":method", "POST");
  AppendField(headers, ":scheme", "http");
  AppendField(headers, ":path", method);
  AppendField(headers, "content-type", "application/grpc");
  AppendField(headers, "te", "trailers");
  if (compressed) AppendField(headers, "grpc-encoding", "gzip");
  std::string bytes(kPreface);
  bytes += Frame(4, 0, 0, "");  // SETTINGS
  bytes += Frame(1, 4, 1, headers);
  for (; body.size() > piece; body.remove_prefix(piece)) {
    bytes += Frame(0, 0, 1, body.substr(0, piece));
  }
  bytes += Frame(0, 1, 1, body);
  // GOAWAY: the server closes once the call is over.
  return bytes + Frame(7, 0, 0, std::string_view("\0\0\0\0\0\0\0\0", 8));
}

}  // namespace

void FuzzGrpc(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const auto choice = static_cast<uint8_t>(bytes[0]);
  const size_t piece = std::max<size_t>(1, static_cast<uint8_t>(bytes[1]));
  const std::string_view rest = bytes.substr(2);
  const size_t method = choice / 4;
  if (choice % 4 == 0 || method >= std::size(kMethods)) {
    Served::Get().AskGrpc(std::string(kPreface).append(rest), true);
    return;
  }
  const std::string call = Call(kMethods[method], choice % 4 == 3, piece, rest);
  if (Served::Get().AskGrpc(call, false).empty()) Finding("no answer");
}

}  // namespace onnxd
