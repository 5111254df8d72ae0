#include "server/http/request_timeout.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr const char* kHeader = "X-Request-Timeout-Ms";
constexpr int64_t kMost = 3'600'000;

}  // namespace

Status ApplyTimeout(const HttpRequest& http, InferenceRequest& request) {
  const std::string* text = http.Header(kHeader);
  if (text == nullptr) return Status::Ok();
  int64_t milliseconds = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, milliseconds);
  if (error != std::errc() || stop != end || milliseconds < 1 || milliseconds > kMost) {
    return InvalidArgument(StrCat(kHeader, " must be a number of milliseconds from 1 to ", kMost));
  }
  const auto deadline = http.origin.arrived + std::chrono::milliseconds(milliseconds);
  request.deadline = request.deadline ? std::min(*request.deadline, deadline) : deadline;
  return Status::Ok();
}

}  // namespace onnxd
