// What the command line asks of a running server over REST.
#pragma once

#include <map>
#include <string>

#include "runtime/base/status.h"

namespace onnxd {

inline constexpr const char* kRestUrl = "http://127.0.0.1:8000";  // where none is given
inline constexpr const char* kGrpcUrl = "http://127.0.0.1:8001";

struct ServerAddress {
  std::string url;                             // http, https, or unix:/path/of/socket; empty: usual
  std::string key;                             // an API key; empty: none
  std::string ca;                              // PEM of the server's authority; empty: the system's
  std::map<std::string, std::string> headers;  // besides
  int timeout_s = 10;
};

struct HttpReply {
  int status = 0;
  std::string body;
};

// Follows no redirects, asks no proxy, and takes at most 256 MB. kInvalidArgument for other URLs,
// kUnavailable with the reason where nobody answers.
Result<HttpReply> Ask(const ServerAddress& server, const std::string& method,
                      const std::string& path, const std::string& body = "",
                      const std::string& content_type = "application/json");

// What the server says is wrong, of a reply whose status is not 200.
Status FailureOf(const HttpReply& reply);

}  // namespace onnxd
