#include "tools/grpc_client.h"

#include <nghttp2/nghttp2.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/str_cat.h"
#include "server/grpc/grpc_framing.h"

namespace onnxd {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int64_t kMostBytes = int64_t{256} << 20;
constexpr int32_t kWindow = 1 << 30;
constexpr std::string_view kUnix = "unix:", kHttp = "http://", kHttps = "https://";

// --- the call: HTTP/2 without a socket ---

using Headers = std::vector<std::pair<std::string, std::string>>;

class Http2Call {
 public:
  Http2Call(const Headers& headers, std::string body) : body_(std::move(body)) {
    nghttp2_session_callbacks* callbacks = nullptr;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) return;
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame*, const uint8_t* name, size_t name_size,
                      const uint8_t* value, size_t value_size, uint8_t, void* self) {
          static_cast<Http2Call*>(self)->OnHeader(
              {reinterpret_cast<const char*>(name), name_size},
              {reinterpret_cast<const char*>(value), value_size});
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks,
        [](nghttp2_session*, uint8_t, int32_t, const uint8_t* data, size_t size, void* self) {
          return static_cast<Http2Call*>(self)->OnData({reinterpret_cast<const char*>(data), size});
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        callbacks, [](nghttp2_session*, int32_t, uint32_t, void* self) {
          static_cast<Http2Call*>(self)->over_ = true;
          return 0;
        });
    nghttp2_session_client_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    if (session_ == nullptr) return;
    const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindow};
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, &window, 1);
    nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kWindow);
    std::vector<nghttp2_nv> fields;
    for (const auto& [name, value] : headers) {
      fields.push_back({reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
                        reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(),
                        value.size(), NGHTTP2_NV_FLAG_NONE});
    }
    nghttp2_data_provider provider{};
    provider.source.ptr = this;
    provider.read_callback = ReadBody;
    nghttp2_submit_request(session_, nullptr, fields.data(), fields.size(), &provider, nullptr);
  }
  ~Http2Call() { nghttp2_session_del(session_); }
  Http2Call(const Http2Call&) = delete;
  Http2Call& operator=(const Http2Call&) = delete;

  // What to send next; empty: nothing before the server has sent something.
  std::string_view Next() {
    const uint8_t* data = nullptr;
    const ssize_t size = session_ == nullptr ? -1 : nghttp2_session_mem_send(session_, &data);
    if (size < 0) over_ = true;
    return size <= 0
               ? std::string_view()
               : std::string_view(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
  }

  void Receive(std::string_view bytes) {
    const ssize_t used = nghttp2_session_mem_recv(
        session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    if (used < 0) over_ = true;
    if (nghttp2_session_want_read(session_) == 0) over_ = true;
  }

  bool over() const { return over_; }

  Result<std::string> Answer() const {
    if (too_large_) return ResourceExhausted("the answer is larger than 256 MB");
    if (!code_) {
      return Unavailable(http_status_.empty() || http_status_ == "200"
                             ? "the server ended the call without a status"
                             : StrCat("the server answers ", http_status_, ", not with gRPC"));
    }
    if (*code_ != 0) return Status(static_cast<StatusCode>(*code_), message_);
    const std::function<bool(int64_t)> admit = [](int64_t) { return true; };
    return UnframeGrpcMessage(answer_, {encoding_, kMostBytes, admit});
  }

 private:
  void OnHeader(std::string_view name, std::string_view value) {
    if (name == ":status") http_status_ = value;
    if (name == "grpc-encoding") encoding_ = value;
    if (name == "grpc-message") message_ = DecodeGrpcMessage(value);
    if (name != "grpc-status") return;
    int code = static_cast<int>(StatusCode::kUnknown);
    std::from_chars(value.data(), value.data() + value.size(), code);
    const bool known = code >= 0 && code <= static_cast<int>(StatusCode::kUnauthenticated);
    code_ = known ? code : static_cast<int>(StatusCode::kUnknown);
  }

  int OnData(std::string_view data) {
    too_large_ = static_cast<int64_t>(answer_.size() + data.size()) > kMostBytes;
    if (too_large_) return NGHTTP2_ERR_CALLBACK_FAILURE;
    answer_ += data;
    return 0;
  }

  static ssize_t ReadBody(nghttp2_session*, int32_t, uint8_t* out, size_t size, uint32_t* flags,
                          nghttp2_data_source* source, void*) {
    Http2Call& self = *static_cast<Http2Call*>(source->ptr);
    const size_t count = std::min(size, self.body_.size() - self.sent_);
    std::copy_n(self.body_.data() + self.sent_, count, out);
    self.sent_ += count;
    if (self.sent_ == self.body_.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(count);
  }

  nghttp2_session* session_ = nullptr;
  const std::string body_;
  size_t sent_ = 0;
  bool over_ = false, too_large_ = false;
  std::string http_status_, encoding_, message_, answer_;
  std::optional<int> code_;
};

// --- the socket ---

// Runs asynchronous steps one after the other, all within one time.
class Steps {
 public:
  explicit Steps(int seconds)
      : deadline_(std::chrono::steady_clock::now() + std::chrono::seconds(seconds)) {}

  asio::io_context& context() { return context_; }

  // `begin` gets the handler, of an error and a result, of one asynchronous operation.
  template <typename Value, typename Begin>
  Result<Value> Await(Begin begin) {
    error_code error;
    std::optional<Value> value;
    begin([&](error_code failure, Value result) {
      error = failure;
      value = std::move(result);
    });
    context_.restart();
    context_.run_until(deadline_);
    if (!value) return DeadlineExceeded("the server did not answer in time");
    if (error) return Unavailable(error.message());
    return *std::move(value);
  }

 private:
  const std::chrono::steady_clock::time_point deadline_;
  asio::io_context context_;
};

struct Nothing {};

template <typename Stream>
Result<std::string> Exchange(Steps& steps, Stream& stream, Http2Call& call) {
  std::vector<char> received(64 * 1024);
  while (!call.over()) {
    if (const std::string_view next = call.Next(); !next.empty()) {
      ONNXD_RETURN_IF_ERROR(steps
                                .Await<size_t>([&](auto handler) {
                                  asio::async_write(stream, asio::buffer(next), handler);
                                })
                                .status());
      continue;
    }
    if (call.over()) break;
    ONNXD_ASSIGN_OR_RETURN(const size_t size, steps.Await<size_t>([&](auto handler) {
      stream.async_read_some(asio::buffer(received), handler);
    }));
    call.Receive({received.data(), size});
  }
  return call.Answer();
}

struct Place {
  std::string host, port;
};

// "HOST", "HOST:PORT", "[::1]:PORT".
Result<Place> PlaceOf(std::string_view authority, std::string_view usual_port) {
  const size_t bracket = authority.find(']');
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  std::string_view host = authority.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || authority.find('/') != std::string_view::npos) {
    return InvalidArgument(StrCat("'", authority, "' is no HOST:PORT"));
  }
  return Place{
      std::string(host),
      std::string(colon == std::string_view::npos ? usual_port : authority.substr(colon + 1))};
}

Result<Nothing> Connect(Steps& steps, asio::ip::tcp::socket& socket, const Place& place) {
  asio::ip::tcp::resolver resolver(steps.context());
  ONNXD_ASSIGN_OR_RETURN(const auto found,
                         steps.Await<asio::ip::tcp::resolver::results_type>([&](auto handler) {
                           resolver.async_resolve(place.host, place.port, handler);
                         }));
  ONNXD_RETURN_IF_ERROR(steps
                            .Await<asio::ip::tcp::endpoint>(
                                [&](auto handler) { asio::async_connect(socket, found, handler); })
                            .status());
  return Nothing{};
}

Result<std::string> OverTls(Steps& steps, const Place& place, const std::string& ca,
                            Http2Call& call) {
  asio::ssl::context context(asio::ssl::context::tls_client);
  error_code error;
  if (ca.empty()) {
    context.set_default_verify_paths(error);
  } else {
    context.load_verify_file(ca, error);
  }
  if (error) return InvalidArgument(StrCat(ca, ": ", error.message()));
  asio::ssl::stream<asio::ip::tcp::socket> stream(steps.context(), context);
  stream.set_verify_mode(asio::ssl::verify_peer);
  stream.set_verify_callback(asio::ssl::host_name_verification(place.host));
  SSL_set_tlsext_host_name(stream.native_handle(), place.host.c_str());
  constexpr unsigned char kH2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(stream.native_handle(), kH2, sizeof(kH2));
  ONNXD_RETURN_IF_ERROR(Connect(steps, stream.next_layer(), place).status());
  ONNXD_RETURN_IF_ERROR(steps
                            .Await<Nothing>([&](auto handler) {
                              stream.async_handshake(
                                  asio::ssl::stream_base::client,
                                  [handler](error_code error) { handler(error, Nothing()); });
                            })
                            .status());
  return Exchange(steps, stream, call);
}

Headers HeadersOf(const ServerAddress& server, const std::string& method,
                  std::string_view authority, bool secure) {
  Headers headers = {{":method", "POST"},
                     {":scheme", secure ? "https" : "http"},
                     {":path", method},
                     {":authority", std::string(authority)},
                     {"content-type", "application/grpc"},
                     {"te", "trailers"},
                     {"grpc-timeout", StrCat(server.timeout_s, "S")},
                     {"grpc-accept-encoding", "identity,gzip"}};
  if (!server.key.empty()) headers.emplace_back("authorization", StrCat("Bearer ", server.key));
  return headers;
}

Result<std::string> CallAt(std::string_view url, const ServerAddress& server,
                           const std::string& method, const std::string& message) {
  Steps steps(server.timeout_s);
  if (url.starts_with(kUnix)) {
    const std::string path(url.substr(kUnix.size()));
    if (path.size() >= sizeof(sockaddr_un::sun_path)) return InvalidArgument("too long a path");
    Http2Call call(HeadersOf(server, method, "localhost", false), FrameGrpcMessage(message));
    asio::local::stream_protocol::socket socket(steps.context());
    error_code error;
    socket.connect(asio::local::stream_protocol::endpoint(path), error);
    if (error) return Unavailable(error.message());
    return Exchange(steps, socket, call);
  }
  const bool secure = url.starts_with(kHttps);
  if (!secure && !url.starts_with(kHttp)) {
    return InvalidArgument("no URL of a server: http://HOST:PORT, https://HOST:PORT or unix:/PATH");
  }
  std::string_view authority = url.substr(secure ? kHttps.size() : kHttp.size());
  if (authority.ends_with('/')) authority.remove_suffix(1);
  ONNXD_ASSIGN_OR_RETURN(const Place place, PlaceOf(authority, secure ? "443" : "80"));
  Http2Call call(HeadersOf(server, method, authority, secure), FrameGrpcMessage(message));
  if (secure) return OverTls(steps, place, server.ca, call);
  asio::ip::tcp::socket socket(steps.context());
  ONNXD_RETURN_IF_ERROR(Connect(steps, socket, place).status());
  return Exchange(steps, socket, call);
}

}  // namespace

Result<std::string> CallGrpc(const ServerAddress& server, const std::string& method,
                             const std::string& message) {
  const std::string url = server.url.empty() ? kGrpcUrl : server.url;
  auto answer = CallAt(url, server, method, message);
  if (!answer.ok()) return answer.status().WithContext(url);
  return answer;
}

}  // namespace onnxd
