#include "server/sources/fetch.h"

#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kMostDocument = size_t{64} << 20;
constexpr size_t kMostError = 64 << 10;
constexpr int kMostRedirections = 10;
constexpr auto kConnect = std::chrono::seconds(10);
constexpr auto kIdle = std::chrono::seconds(30);
constexpr auto kLocal = std::chrono::seconds(2);
constexpr const char* kSecrets[] = {"Authorization", "Cookie", "x-amz-security-token"};

std::string Lowered(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

struct Parts {
  std::string origin, host, path;  // https://host:port, host, /path?query
};

Result<Parts> PartsOf(const std::string& url) {
  if (!url.starts_with("http://") && !url.starts_with("https://")) {
    return InvalidArgument(StrCat("'", url.substr(0, 128), "' is no URL that can be fetched"));
  }
  const size_t host = url.find("://") + 3;
  const size_t path = std::min(url.find('/', host), url.size());
  Parts parts{url.substr(0, path), url.substr(host, path - host), url.substr(path)};
  parts.host = parts.host.substr(0, parts.host.find(':'));
  if (parts.host.empty())
    return InvalidArgument(StrCat("'", url.substr(0, 128), "' names no host"));
  if (parts.path.empty()) parts.path = "/";
  return parts;
}

std::string Environment(const char* lower, const char* upper) {
  const char* value = std::getenv(lower);
  if (value == nullptr) value = std::getenv(upper);
  return value == nullptr ? "" : value;
}

bool BypassesProxy(const std::string& host) {
  for (std::string suffix : SplitList(Environment("no_proxy", "NO_PROXY"), ',')) {
    if (suffix == "*") return true;
    while (suffix.starts_with('.')) suffix.erase(0, 1);
    if (host == suffix || host.ends_with("." + suffix)) return true;
  }
  return false;
}

void SetProxy(httplib::Client& client, const Parts& url) {
  if (BypassesProxy(url.host)) return;
  const std::string proxy = url.origin.starts_with("https:")
                                ? Environment("https_proxy", "HTTPS_PROXY")
                                : Environment("http_proxy", "http_proxy");
  if (proxy.empty()) return;
  const size_t scheme = proxy.find("://");
  std::string address = scheme == std::string::npos ? proxy : proxy.substr(scheme + 3);
  address = address.substr(0, address.find('/'));
  const size_t at = address.rfind('@');
  if (at != std::string::npos) {
    const std::string user = address.substr(0, at);
    const size_t colon = user.find(':');
    client.set_proxy_basic_auth(user.substr(0, colon),
                                colon == std::string::npos ? "" : user.substr(colon + 1));
    address = address.substr(at + 1);
  }
  const size_t colon = address.rfind(':');
  const int port = colon == std::string::npos ? 80 : std::atoi(address.c_str() + colon + 1);
  client.set_proxy(address.substr(0, colon), port);
}

FetchResponse Noted(const httplib::Response& response) {
  FetchResponse noted;
  noted.status = response.status;
  for (const auto& [name, value] : response.headers) noted.headers[Lowered(name)] = value;
  return noted;
}

bool IsRedirection(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Of `location`, as seen from `url`.
std::string Resolved(const std::string& location, const Parts& url) {
  if (location.starts_with("//")) return url.origin.substr(0, url.origin.find(':') + 1) + location;
  if (location.starts_with('/')) return url.origin + location;
  if (location.find("://") != std::string::npos) return location;
  return url.origin + url.path.substr(0, url.path.rfind('/') + 1) + location;
}

}  // namespace

// One, no redirection followed.
class Fetcher::Exchange {
 public:
  Exchange(const Fetcher& fetcher, const FetchRequest& request, const Parts& url, const Sink& sink)
      : fetcher_(fetcher), request_(request), url_(url), sink_(sink), client_(url.origin) {}

  Result<FetchResponse> Run() {
    if (!client_.is_valid()) return InvalidArgument(StrCat("'", url_.origin, "' is no address"));
    SetUp();
    httplib::Request message = Message();
    {
      std::lock_guard lock(fetcher_.mutex_);
      fetcher_.abort_ = [this] { client_.stop(); };
    }
    const auto answer = client_.send(message);
    {
      std::lock_guard lock(fetcher_.mutex_);
      fetcher_.abort_ = nullptr;
    }
    if (fetcher_.cancelled()) return Cancelled("the server is stopping");
    if (!failure_.ok()) return failure_;
    if (!answer) {
      return Unavailable(StrCat("no answer from ", url_.origin, ": ", to_string(answer.error())));
    }
    if (response_.status == 0) response_ = Noted(*answer);  // there was no body
    return std::move(response_);
  }

 private:
  void SetUp() {
    client_.set_follow_location(false);
    client_.set_url_encode(false);
    client_.set_decompress(false);
    client_.set_connection_timeout(request_.is_local ? kLocal : kConnect);
    client_.set_read_timeout(request_.is_local ? kLocal : kIdle);
    client_.set_write_timeout(kIdle);
    if (!request_.is_local) SetProxy(client_, url_);
  }

  httplib::Request Message() {
    httplib::Request message;
    message.method = request_.method;
    message.path = url_.path;
    message.body = request_.body;
    for (const auto& [name, value] : request_.headers) message.set_header(name.c_str(), value);
    message.set_header("Accept-Encoding", "identity");
    message.set_header("User-Agent", "onnxd");
    message.response_handler = [this](const httplib::Response& begun) {
      response_ = Noted(begun);
      if (response_.status / 100 == 2) failure_ = sink_.begin(response_);
      return failure_.ok();
    };
    message.content_receiver = [this](const char* data, size_t size, uint64_t, uint64_t) {
      return Take({data, size});
    };
    return message;
  }

  bool Take(std::string_view bytes) {
    if (fetcher_.cancelled()) {
      failure_ = Cancelled("the server is stopping");
    } else if (response_.status / 100 == 2) {
      failure_ = sink_.bytes(bytes);
    } else if (response_.body.size() < kMostError) {
      response_.body.append(bytes.substr(0, kMostError));
    }
    return failure_.ok();
  }

  const Fetcher& fetcher_;
  const FetchRequest& request_;
  const Parts& url_;
  const Sink& sink_;
  httplib::Client client_;
  FetchResponse response_;
  Status failure_;
};

std::string FetchResponse::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

Result<FetchResponse> Fetcher::Stream(const FetchRequest& request, const Sink& sink) const {
  FetchRequest next = request;
  for (int i = 0; i <= kMostRedirections; ++i) {
    ONNXD_ASSIGN_OR_RETURN(const Parts url, PartsOf(next.url));
    ONNXD_ASSIGN_OR_RETURN(auto response, Exchange(*this, next, url, sink).Run());
    const std::string location = response.Header("location");
    if (!IsRedirection(response.status) || location.empty()) return response;
    next.url = Resolved(location, url);
    if (next.url.starts_with("http://") && url.origin.starts_with("https://")) {
      return Unavailable(
          StrCat(url.origin, " sends to ", next.url.substr(0, 128), ", which is not encrypted"));
    }
    const auto target = PartsOf(next.url);
    if (!target.ok() || target->origin != url.origin) {
      for (const char* secret : kSecrets) next.headers.erase(secret);
    }
  }
  return Unavailable(StrCat(request.url, " redirects too often"));
}

std::string Fetcher::AskMachine(FetchRequest request) const {
  constexpr size_t kMost = 1 << 20;
  request.is_local = true;
  std::string body;
  const auto response =
      Stream(request, {[](const FetchResponse&) { return Status::Ok(); },
                       [&body](std::string_view bytes) {
                         body += bytes;
                         return body.size() <= kMost ? Status::Ok() : ResourceExhausted("too much");
                       }});
  return response.ok() && response->status == 200 ? body : "";
}

void Fetcher::Abort() const {
  std::lock_guard lock(mutex_);
  if (abort_) abort_();
}

bool Fetcher::Pause(int attempt) const {
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(200) * (1 << attempt);
  while (!cancelled() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return !cancelled();
}

Result<FetchResponse> Fetcher::Fetch(const FetchRequest& request) const {
  for (int attempt = 1;; ++attempt) {
    if (cancelled()) return Cancelled("the server is stopping");
    std::string body;
    const Sink sink{[](const FetchResponse&) { return Status::Ok(); },
                    [&body](std::string_view bytes) {
                      if (body.size() + bytes.size() > kMostDocument) {
                        return ResourceExhausted("the document is too large");
                      }
                      body += bytes;
                      return Status::Ok();
                    }};
    auto response = Stream(request, sink);
    const bool again = response.ok() ? IsPassing(response->status)
                                     : response.status().code() == StatusCode::kUnavailable;
    if (!again || attempt == kAttempts) {
      if (response.ok() && response->status / 100 == 2) response->body = std::move(body);
      return response;
    }
    if (!Pause(attempt)) return Cancelled("the server is stopping");
  }
}

bool IsPassing(int http_status) {
  return http_status == 408 || http_status == 429 || http_status / 100 == 5;
}

Status StatusOf(const FetchResponse& response, const std::string& what) {
  std::string said = response.body.substr(0, 300);
  std::replace_if(
      said.begin(), said.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  const std::string message =
      StrCat(what, ": the server answers ", response.status, said.empty() ? "" : ": ", said);
  switch (response.status) {
    case 401:
    case 403:
      return PermissionDenied(message);
    case 404:
    case 410:
      return NotFound(message);
    default:
      return response.status / 100 == 5 ? Unavailable(message) : FailedPrecondition(message);
  }
}

}  // namespace onnxd
