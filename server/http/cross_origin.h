// What pages that a browser has loaded from elsewhere may do.
// Source: https://fetch.spec.whatwg.org/#http-cors-protocol
#pragma once

#include <optional>
#include <set>
#include <string>

#include "server/http/http_message.h"

namespace onnxd {

// Any thread.
class CrossOrigin {
 public:
  // `origins`: "https://app.example.com,http://localhost:3000"; "*": all; empty: none.
  explicit CrossOrigin(const std::string& origins);

  // The answer to a browser that asks before it sends; nullopt for all other requests.
  std::optional<HttpResponse> Preflight(const HttpRequest& request) const;
  // Lets the page that asked read the answer, if it may.
  void Allow(const std::string& origin, HttpResponse& response) const;

  // Of a call that changes the server: pages of other origins that are not named are refused,
  // whatever keys the browser would send. With `without_keys`, where being on this machine is all
  // that is asked for, the Host must name this machine: else any page could have its own name
  // lead here. kPermissionDenied.
  Status CheckAdmin(const HttpRequest& request, bool without_keys) const;

 private:
  bool Allows(const std::string& origin) const;

  std::set<std::string> origins_;
  bool all_ = false;
};

}  // namespace onnxd
