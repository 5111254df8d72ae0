// Fuzz target: any bytes as a serialized request, before and after the scan: what it lets
// through must parse, or not, without becoming many times larger, and what it refuses as no message
// must be none.
#include <string>

#include "proto/onnxd.pb.h"
#include "proto/open_inference.pb.h"
#include "runtime/base/str_cat.h"
#include "server/grpc/message_scan.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/served.h"

namespace onnxd {
namespace {

constexpr size_t kBytes = size_t{1} << 20, kBytesPerByte = 64;

template <typename Message>
bool HasUnknownFields(Message message) {
  const size_t size = message.ByteSizeLong();
  message.DiscardUnknownFields();
  return message.ByteSizeLong() != size;
}

template <typename Message>
void Check(const std::string& bytes, const Status& scanned) {
  if (scanned.code() == StatusCode::kResourceExhausted) return;
  Message message;
  const bool parsed = message.ParseFromString(bytes);
  if (!scanned.ok()) {
    // What protobuf itself would not write, groups for example, may be refused.
    if (parsed && message.SerializeAsString() == bytes && !HasUnknownFields(message)) {
      Finding(StrCat("the scan refuses a message: ", scanned.ToString()));
    }
    return;
  }
  const size_t used = message.SpaceUsedLong();
  if (used > kBytes + kBytesPerByte * bytes.size()) {
    Finding(StrCat(bytes.size(), " bytes became ", used));
  }
}

}  // namespace

void FuzzScan(std::string_view bytes) {
  const std::string message(bytes);
  Check<inference::ModelInferRequest>(message, ScanInferRequest(message));
  Check<v1::PredictRequest>(message, ScanPredictRequest(message));
}

}  // namespace onnxd
