#include "server/http/openai_error.h"

#include <utility>

#include "runtime/base/str_cat.h"
#include "server/http/rest_api.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

HttpResponse WithOpenAiBody(HttpResponse response, std::string_view message) {
  response.body = OpenAiErrorJson(response.status, message);
  return response;
}

}  // namespace

std::string OpenAiErrorJson(int status, std::string_view message) {
  const char* const type = status == 429   ? "rate_limit_error"
                           : status >= 500 ? "server_error"
                                           : "invalid_request_error";
  std::string json = "{\"error\":{\"message\":";
  AppendJsonString(json, message);
  return json + StrCat(",\"type\":\"", type, "\",\"param\":null,\"code\":null}}");
}

HttpResponse OpenAiRefusal(const Status& status) {
  return WithOpenAiBody(ErrorResponse(status), status.message());
}

HttpResponse OpenAiOverQuota(const Status& status) {
  return WithOpenAiBody(OverQuotaResponse(status), status.message());
}

}  // namespace onnxd
