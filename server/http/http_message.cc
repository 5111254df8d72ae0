#include "server/http/http_message.h"

#include <algorithm>
#include <cctype>

#include "server/inference/json_writer.h"

namespace onnxd {

namespace {

bool IsNamed(const std::pair<std::string, std::string>& header, std::string_view name) {
  return std::equal(
      header.first.begin(), header.first.end(), name.begin(), name.end(),
      [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
}

}  // namespace

const std::string* HttpRequest::Header(std::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(),
                                  [&](const auto& header) { return IsNamed(header, name); });
  return found == headers.end() ? nullptr : &found->second;
}

size_t HttpRequest::CountHeaders(std::string_view name) const {
  return static_cast<size_t>(std::count_if(
      headers.begin(), headers.end(), [&](const auto& header) { return IsNamed(header, name); }));
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
