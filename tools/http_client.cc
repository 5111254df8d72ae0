#include "tools/http_client.h"

#include <httplib.h>

#include <nlohmann/json.hpp>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kMostBytes = size_t{256} << 20;
constexpr std::string_view kUnix = "unix:";

Result<std::unique_ptr<httplib::Client>> ClientFor(const std::string& url,
                                                   const ServerAddress& server) {
  std::unique_ptr<httplib::Client> client;
  if (url.starts_with(kUnix)) {
    client = std::make_unique<httplib::Client>(url.substr(kUnix.size()));
    client->set_address_family(AF_UNIX);
  } else if (url.starts_with("http://") || url.starts_with("https://")) {
    client = std::make_unique<httplib::Client>(url);
  } else {
    return InvalidArgument(
        StrCat("'", url, "' is no URL of a server: http://HOST:PORT, https://HOST:PORT or ",
               "unix:/PATH"));
  }
  if (!client->is_valid()) return InvalidArgument(StrCat("'", url, "' is no URL"));
  client->set_follow_location(false);
  client->set_connection_timeout(server.timeout_s);
  client->set_read_timeout(server.timeout_s);
  client->set_write_timeout(server.timeout_s);
  client->enable_server_certificate_verification(true);
  if (!server.ca.empty()) client->set_ca_cert_path(server.ca.c_str());
  return client;
}

}  // namespace

Result<HttpReply> Ask(const ServerAddress& server, const std::string& method,
                      const std::string& path, const std::string& body,
                      const std::string& content_type) {
  const std::string url = server.url.empty() ? kRestUrl : server.url;
  ONNXD_ASSIGN_OR_RETURN(const auto client, ClientFor(url, server));
  httplib::Request request;
  request.method = method;
  request.path = path;
  request.body = body;
  if (!body.empty()) request.set_header("Content-Type", content_type);
  if (!server.key.empty()) request.set_header("Authorization", StrCat("Bearer ", server.key));
  for (const auto& [name, value] : server.headers) request.set_header(name.c_str(), value);
  if (url.starts_with(kUnix)) request.set_header("Host", "localhost");
  HttpReply reply;
  request.content_receiver = [&reply](const char* data, size_t size, uint64_t, uint64_t) {
    if (reply.body.size() + size > kMostBytes) return false;
    reply.body.append(data, size);
    return true;
  };
  const auto answer = client->send(request);
  if (!answer) {
    return Unavailable(StrCat(url, ": ", httplib::to_string(answer.error())));
  }
  reply.status = answer->status;
  return reply;
}

Status FailureOf(const HttpReply& reply) {
  const auto document = nlohmann::json::parse(reply.body, nullptr, false);
  const bool has_text =
      document.is_object() && document.contains("error") && document["error"].is_string();
  const std::string text =
      has_text ? document["error"].get<std::string>() : reply.body.substr(0, 500);
  return Unavailable(StrCat("the server answers ", reply.status, ": ", text));
}

}  // namespace onnxd
