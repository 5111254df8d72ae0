// An HTTP request and its answer as the API handlers see them: whole, checked, without a socket.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/access/grant.h"
#include "server/http/http_stream.h"
#include "server/inference/request_origin.h"

namespace onnxd {

// Bytes of a message and what keeps them alive.
struct HttpBody {
  static constexpr size_t kPadding = 64;  // what readers of JSON want behind it

  std::string_view bytes;
  std::shared_ptr<void> owner;
  size_t readable_after = 0;  // bytes behind it that may be read; what they are has no meaning
};

struct HttpRequest {
  std::string method;  // GET, HEAD, POST, ...
  std::string target;  // as sent: path and query
  std::vector<std::pair<std::string, std::string>> headers;
  HttpBody body;
  std::shared_ptr<const Grant> grant;  // what its key lets it do
  RequestOrigin origin;
  std::string certificate;  // the common name of the one its client showed; may be empty

  // The first header of that name, compared without case; null when there is none. And how many
  // there are.
  const std::string* Header(std::string_view name) const;
  size_t CountHeaders(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // Where it is there, the body comes from it, behind the one above, until its end.
  std::shared_ptr<HttpStream> stream = nullptr;
  // The client may get it compressed, where it asked for that and it is long enough to gain.
  bool may_compress = false;
};

// Called once, from any thread.
using HttpRespond = std::function<void(HttpResponse)>;
using HttpHandler = std::function<void(HttpRequest, HttpRespond)>;
// What a request, of which only the head is there, is answered without its body being read; nullopt
// where it will be handled.
using HttpRefuse = std::function<std::optional<HttpResponse>(const HttpRequest&)>;

// {"error": message}, escaped.
HttpResponse ErrorResponse(int status, std::string_view message);

}  // namespace onnxd
