#include "server/http/infer_parameters.h"

#include <algorithm>
#include <chrono>

#include "runtime/base/str_cat.h"
#include "server/http/generation_parameters.h"

namespace onnxd {
namespace {

constexpr size_t kMaxIdBytes = 256;

Status ReadTimeout(JsonValue value, InferenceRequest& request) {
  int64_t microseconds;
  if (value.get_int64().get(microseconds) != simdjson::SUCCESS || microseconds < 0) {
    return InvalidArgument("timeout must be a number of microseconds");
  }
  if (microseconds > 0) {
    request.timeout = std::min(std::chrono::microseconds(microseconds),
                               std::chrono::microseconds(InferenceRequest::kMostTimeout));
  }
  return Status::Ok();
}

Status ReadSequenceId(JsonValue value, SequenceControl::Id& id) {
  if (value.get_uint64().get(id.number) == simdjson::SUCCESS) return Status::Ok();
  std::string_view text;
  if (value.get_string().get(text) == simdjson::SUCCESS) {
    id.text = text;
    return Status::Ok();
  }
  return InvalidArgument("sequence_id must be a positive whole number or a string");
}

}  // namespace

Result<std::string> ReadRequestId(JsonValue value) {
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS) {
    return InvalidArgument("\"id\" must be a string");
  }
  if (text.size() > kMaxIdBytes) return InvalidArgument("the id is too long");
  return std::string(text);
}

Status ReadInferParameter(std::string_view key, JsonValue value, int64_t max_depth,
                          bool writes_texts, InferenceRequest& request) {
  if (writes_texts) {
    ONNXD_ASSIGN_OR_RETURN(const bool is_of_generation,
                           ReadGenerationParameter(key, value, request.generation));
    if (is_of_generation) return Status::Ok();
  }
  if (key == "timeout") return ReadTimeout(value, request);
  if (key == "priority") {
    if (value.get_int64().get(request.priority) != simdjson::SUCCESS || request.priority < 0) {
      return InvalidArgument("priority must be a whole number, 1 the most urgent");
    }
    return Status::Ok();
  }
  if (key == "sequence_id") return ReadSequenceId(value, request.sequence.id);
  if (key == "sequence_start" || key == "sequence_end") {
    bool& flag = key == "sequence_start" ? request.sequence.starts : request.sequence.ends;
    if (value.get_bool().get(flag) == simdjson::SUCCESS) return Status::Ok();
    return InvalidArgument(StrCat(key, " must be true or false"));
  }
  return CheckIgnored(value, max_depth);
}

}  // namespace onnxd
