#include "server/http/http_message.h"

#include <algorithm>
#include <cctype>

#include "server/inference/json_writer.h"

namespace onnxd {

const std::string* HttpRequest::Header(std::string_view name) const {
  const auto same = [](unsigned char a, unsigned char b) {
    return std::tolower(a) == std::tolower(b);
  };
  for (const auto& [key, value] : headers) {
    if (std::equal(key.begin(), key.end(), name.begin(), name.end(), same)) return &value;
  }
  return nullptr;
}

HttpResponse ErrorResponse(int status, std::string_view message) {
  HttpResponse response;
  response.status = status;
  response.body = "{\"error\":";
  AppendJsonString(response.body, message);
  response.body += '}';
  return response;
}

}  // namespace onnxd
