#include "server/http/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <limits>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_set>

#include "runtime/base/exceptions.h"
#include "runtime/base/machine.h"
#include "runtime/base/str_cat.h"
#include "server/http/body_buffer.h"
#include "server/http/content_coding.h"
#include "server/net/client_connections.h"
#include "server/net/connection_age.h"
#include "server/net/one_reply.h"

namespace onnxd {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using std::chrono::seconds;

constexpr size_t kMaxHeaderBytes = 16 * 1024;
constexpr size_t kMaxRequestLine = 8 * 1024;
constexpr size_t kMaxHeaders = 100;
constexpr size_t kMaxLingerBytes = 1 << 20;
constexpr size_t kReadBytes = 32 * 1024;
constexpr size_t kTurnBytes = 128 * 1024;  // of a body, before the thread's other connections
constexpr int64_t kAskFirst = 64 * 1024;   // bytes of a body
constexpr size_t kMuchJson = 256 * 1024;   // takes a millisecond to read
constexpr size_t kMuchMemory = 4 << 20;    // of JSON: what reading it cost is given back at once
// Of a body: what comes in each such time, after a first one in which it may be slower.
constexpr auto kBodyGrace = seconds(30), kBodyWindow = seconds(10);
constexpr size_t kLeastInWindow = 160 * 1024;  // bytes
constexpr const char* kSlowBody = "the request's body took too long";

using Clock = std::chrono::steady_clock;
using Parser = http::request_parser<http::string_body>;

int StatusOfParseError(const error_code& error) {
  if (error == http::error::body_limit) return 413;
  if (error == http::error::bad_version) return 505;
  return 400;
}

// What Beast's parser lets through and a proxy might read otherwise. Returns what is wrong.
const char* FramingFault(const http::request_header<>& header) {
  size_t hosts = 0, lengths = 0, encodings = 0, count = 0;
  for (const auto& field : header) {
    ++count;
    hosts += field.name() == http::field::host;
    lengths += field.name() == http::field::content_length;
    encodings += field.name() == http::field::transfer_encoding;
    for (const char c : field.value()) {
      const auto byte = static_cast<unsigned char>(c);
      if ((byte < 0x20 && c != '\t') || byte == 0x7f) return "a header holds a control character";
    }
  }
  if (count > kMaxHeaders) return "too many headers";
  if (lengths > 1 || encodings > 1) return "the length of the body is stated twice";
  if (lengths > 0 && encodings > 0) return "both Content-Length and Transfer-Encoding";
  if (lengths == 1) {
    const auto value = header[http::field::content_length];
    const bool digits =
        !value.empty() && value.size() < 20 &&
        std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) return "Content-Length is no number";
  }
  if (encodings > 0) {
    if (header.version() < 11) return "Transfer-Encoding in HTTP/1.0";
    if (!beast::iequals(header[http::field::transfer_encoding], "chunked")) {
      return "a transfer coding other than chunked";
    }
  }
  if (hosts > 1 || (hosts == 0 && header.version() == 11)) return "there must be one Host header";
  return nullptr;
}

// Whether a header goes on in the next line, which RFC 9112, 5.2, lets a server refuse: proxies
// disagree on where it ends.
bool HasFolds(std::string_view header) {
  return header.find("\r\n ") != header.npos || header.find("\r\n\t") != header.npos;
}

// How many bytes of a body come before its tensors: what follows them is aligned.
size_t JsonBytes(const http::request_header<>& header) {
  const auto text = header["Inference-Header-Content-Length"];
  size_t bytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), bytes);
  return bytes;
}

std::string ToString(beast::string_view text) { return std::string(text.data(), text.size()); }

class Session;

}  // namespace

struct HttpServer::Shared {
  ServerOptions::Limits limits;
  int64_t compress_from;
  BodyBudget budget;
  ServerMetrics* metrics;
  HttpHandler handler;
  HttpRefuse refuse;
  IoThreads* threads;
  const TrustedProxies* proxies;
  std::atomic<bool> announced{false}, draining{false};
  std::atomic<int64_t> busy{0};
  std::mutex mutex;
  std::unordered_set<Session*> sessions;  // guarded by mutex
  ClientConnections clients;              // guarded by mutex

  // Of the client, or with none of the one that has most, the session that has waited for a request
  // for longest; null: all are at work. Requires mutex.
  Session* LongestIdle(const std::string& client) const;
};

namespace {

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::unique_ptr<Connection> socket, std::shared_ptr<HttpServer::Shared> shared)
      : socket_(std::move(socket)),
        timer_(socket_->get_executor()),
        shared_(std::move(shared)),
        client_(socket_->client()),
        certificate_(socket_->certificate_name()),
        end_of_age_(EndOfAge(shared_->limits, Clock::now())) {
    shared_->metrics->ConnectionOpened(Protocol::kHttp);
  }
  ~Session() {
    {
      std::lock_guard lock(shared_->mutex);
      if (shared_->sessions.erase(this) > 0) shared_->clients.Leave(client_);
    }
    FinishRequest();
    shared_->metrics->ConnectionClosed(Protocol::kHttp);
  }

  void Start() {
    asio::dispatch(socket_->get_executor(), [self = shared_from_this()] { self->NextRequest(); });
  }

  // Closes the connection if it waits for a request. Any thread.
  void CloseIfIdle() {
    asio::post(socket_->get_executor(), [self = shared_from_this()] {
      if (!self->busy_) self->Close();
    });
  }

  // When the wait for a request began, in ticks of the steady clock; kAtWork while there is one.
  int64_t idle_since() const { return idle_since_.load(std::memory_order_relaxed); }
  static constexpr int64_t kAtWork = std::numeric_limits<int64_t>::max();

  const std::string& client() const { return client_; }

  // Takes the session out of the choice for closing. Requires Shared::mutex.
  void MarkEvicted() { idle_since_.store(kAtWork, std::memory_order_relaxed); }

 private:
  using Next = void (Session::*)(error_code);

  // One instantiation of each asynchronous operation serves all steps: Beast's composed operations
  // would cost half a minute to compile and give nothing here.
  void ReadMore(Next next) {
    socket_->async_read_some(buffer_.prepare(kReadBytes),
                             [self = shared_from_this(), next](error_code error, size_t bytes) {
                               self->buffer_.commit(bytes);
                               self->received_ += bytes;
                               if (self->expired_) error = beast::error::timeout;
                               (self.get()->*next)(error);
                             });
  }

  // Cancels what is under way when the time is over; the socket stays open for an answer.
  void ExpireAfter(std::chrono::steady_clock::duration time) {
    expired_ = false;
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this()](error_code error) {
      const bool over = self->timer_.expiry() <= std::chrono::steady_clock::now();
      if (error || !over) return;  // cancelled, or set anew in the meantime
      self->expired_ = true;
      self->socket_->Cancel();
    });
  }

  void ExpireNever() {
    expired_ = false;
    timer_.expires_at(std::chrono::steady_clock::time_point::max());
  }

  void NextRequest() {
    FinishRequest();
    if (shared_->draining.load(std::memory_order_relaxed)) return Close();
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(static_cast<uint64_t>(shared_->limits.body_bytes));
    parser_->eager(false);
    if (buffer_.size() > 0) return BeginHeader({});
    ExpireAfter(seconds(shared_->limits.idle_timeout_s));
    idle_since_.store(std::chrono::steady_clock::now().time_since_epoch().count(),
                      std::memory_order_relaxed);
    ReadMore(&Session::BeginHeader);
  }

  void BeginHeader(error_code error) {
    if (error) return Close();
    busy_ = true;
    arrived_ = Clock::now();
    idle_since_.store(kAtWork, std::memory_order_relaxed);
    shared_->busy.fetch_add(1, std::memory_order_relaxed);
    ExpireAfter(seconds(shared_->limits.header_timeout_s));
    ParseHeader({});
  }

  void ParseHeader(error_code error) {
    if (error == beast::error::timeout) return Refuse(408, "the request's header took too long");
    if (error) return Close();
    const size_t used = parser_->put(buffer_.data(), error);
    const bool folds = HasFolds({static_cast<const char*>(buffer_.data().data()), used});
    buffer_.consume(used);
    if (error == http::error::need_more) return ReadMore(&Session::ParseHeader);
    if (error == http::error::body_limit) return Refuse(413, BodyLimitText());
    if (error == http::error::header_limit) return RefuseLongHeader();
    if (error) return Refuse(StatusOfParseError(error), "malformed HTTP request");
    if (folds) return Refuse(400, "a header goes on in another line");
    if (!parser_->is_header_done()) return ReadMore(&Session::ParseHeader);
    OnHeader();
  }

  void RefuseLongHeader() {
    if (parser_->get().target().empty()) return Refuse(414, "the request line is too long");
    Refuse(431, StrCat("the header is longer than ", kMaxHeaderBytes, " bytes"));
  }

  void OnHeader() {
    const auto& header = parser_->get();
    if (header.target().size() > kMaxRequestLine) return Refuse(414, "the target is too long");
    if (const char* fault = FramingFault(header)) {
      const bool many = std::string_view(fault) == "too many headers";
      return Refuse(many ? 431 : 400, fault);
    }
    const auto length = parser_->content_length();
    admitted_ = parser_->chunked() ? shared_->limits.body_bytes
                                   : static_cast<int64_t>(length ? *length : 0);
    if (admitted_ > kAskFirst && shared_->refuse != nullptr) {
      std::optional<HttpResponse> refusal;
      const Status asked = CatchExceptions([&] {
        refusal = shared_->refuse(HeadOf(header));
        return Status::Ok();
      });
      if (!asked.ok()) refusal = ErrorResponse(503, asked.message());
      if (refusal) {
        admitted_ = 0;
        return RefuseWith(std::move(*refusal));
      }
    }
    if (admitted_ > 0 && !shared_->budget.admit(admitted_)) {
      admitted_ = 0;
      return Refuse(503, "too many request bytes are in memory");
    }
    if (parser_->chunked()) {
      parser_->eager(true);
      without_trailers_ = header;
    } else if (!body_.Allocate(static_cast<size_t>(admitted_), JsonBytes(header))) {
      return Refuse(503, "no memory for the body");
    }
    const auto expect = header[http::field::expect];
    if (!expect.empty()) {
      if (!beast::iequals(expect, "100-continue")) return Refuse(417, "unknown expectation");
      if ((parser_->chunked() || body_.left() > 0) && buffer_.size() == 0) {
        head_text_ = "HTTP/1.1 100 Continue\r\n\r\n";
        return WriteSome(&Session::ReadBody);
      }
    }
    ReadBody({});
  }

  void ReadBody(error_code) {
    WatchBody(kBodyGrace, 0);
    if (parser_->chunked()) return ParseChunks({});
    const size_t there = std::min(buffer_.size(), body_.left());
    asio::buffer_copy(body_.Rest(), buffer_.data(), there);
    body_.Add(there);
    buffer_.consume(there);
    ReadSized({});
  }

  // Ends the reading of a body of which less comes in such a time; then of one that grows too
  // slowly.
  void WatchBody(std::chrono::seconds time, size_t least) {
    expired_ = false;
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this(), least, before = received_](error_code error) {
      const bool over = self->timer_.expiry() <= Clock::now();
      if (error || !over) return;
      if (self->received_ - before >= least) return self->WatchBody(kBodyWindow, kLeastInWindow);
      self->expired_ = true;
      self->socket_->Cancel();
    });
  }

  void ReadSized(error_code error) {
    if (error == beast::error::timeout) return Refuse(408, kSlowBody);
    if (error) return Close();
    if (body_.left() == 0) return Decode(body_.Take());
    socket_->async_read_some(asio::buffer(body_.Rest(), kTurnBytes),
                             [self = shared_from_this()](error_code failure, size_t bytes) {
                               self->body_.Add(bytes);
                               self->received_ += bytes;
                               if (self->expired_) failure = beast::error::timeout;
                               self->ReadSized(failure);
                             });
  }

  void ParseChunks(error_code error) {
    if (error == beast::error::timeout) return Refuse(408, kSlowBody);
    if (error) return Close();
    while (!parser_->is_done()) {
      if (buffer_.size() == 0) return ReadMore(&Session::ParseChunks);
      const size_t used = parser_->put(buffer_.data(), error);
      buffer_.consume(used);
      if (error == http::error::need_more && buffer_.size() < kMaxHeaderBytes) {
        return ReadMore(&Session::ParseChunks);
      }
      if (error == http::error::body_limit) return Refuse(413, BodyLimitText());
      if (error) return Refuse(400, "malformed HTTP request");
    }
    const auto whole = std::make_shared<std::string>(std::move(parser_->get().body()));
    // What stands behind the chunks says nothing about the request.
    parser_->get().base() = std::move(without_trailers_);
    Decode({*whole, whole});
  }

  // Where an answer goes, for OneReply.
  struct Way {
    using Answer = HttpResponse;
    std::shared_ptr<Session> session;

    void Post(HttpResponse response) {
      session->answered_.store(true, std::memory_order_relaxed);
      asio::post(session->socket_->get_executor(),
                 [session = session, response = std::move(response)]() mutable {
                   session->Write(std::move(response));
                 });
    }
    HttpResponse Lost() { return ErrorResponse(503, "no memory"); }
    void Break() { shutdown(session->socket_->native_handle(), SHUT_RDWR); }
  };

  // Answers a request that cannot be decoded, or has it handled.
  void Decode(HttpBody body) {
    const auto coding = parser_->get()[http::field::content_encoding];
    if (coding.empty()) return Handle(std::move(body));
    const auto admit = [this](int64_t bytes) {
      if (!shared_->budget.admit(bytes)) return false;
      admitted_ += bytes;
      return true;
    };
    Result<HttpBody> decoded = HttpBody();
    const Status status = CatchExceptions([&] {
      decoded = DecodeBody(std::move(body), {coding.data(), coding.size()},
                           shared_->limits.body_bytes, admit);
      return decoded.status();
    });
    if (status.ok()) return Handle(*std::move(decoded));
    const StatusCode code = status.code();
    Refuse(code == StatusCode::kUnimplemented       ? 415
           : code == StatusCode::kResourceExhausted ? 413
           : code == StatusCode::kUnavailable       ? 503
                                                    : 400,
           status.message());
  }

  // All but its body.
  HttpRequest HeadOf(const http::request_header<>& header) const {
    HttpRequest request;
    request.method = ToString(header.method_string());
    request.target = ToString(header.target());
    std::string forwarded_for;
    for (const auto& field : header) {
      if (beast::iequals(field.name_string(), "X-Forwarded-For")) {
        forwarded_for += StrCat(forwarded_for.empty() ? "" : ",", ToString(field.value()));
      }
      request.headers.emplace_back(ToString(field.name_string()), ToString(field.value()));
    }
    request.origin.client = shared_->proxies->ClientOf(client_, forwarded_for);
    request.certificate = certificate_;
    request.origin.arrived = arrived_;
    request.origin.received = std::chrono::steady_clock::now();
    return request;
  }

  void Handle(HttpBody body) {
    const auto accepted = parser_->get()[http::field::accept_encoding];
    const auto compression = shared_->compress_from > 0
                                 ? AcceptedCompression({accepted.data(), accepted.size()})
                                 : std::nullopt;
    const auto message = parser_->release();
    const size_t stated = JsonBytes(message);
    const size_t json = stated > 0 ? stated : body.bytes.size();
    HttpRequest request = HeadOf(message);
    request.body = std::move(body);
    request.origin.cancelled = cancelled_ = std::make_shared<std::atomic<bool>>(false);
    head_ = message.method() == http::verb::head;
    version_ = message.version();
    ++requests_;
    keep_alive_ = message.keep_alive() && requests_ < shared_->limits.requests_per_connection &&
                  Clock::now() < end_of_age_;
    ExpireNever();
    answered_.store(false, std::memory_order_relaxed);
    const auto reply = std::make_shared<OneReply<Way>>(Way{shared_from_this()});
    if (json > kMuchJson) {
      const Status posted = CatchExceptions([&] {
        const auto waiting = std::make_shared<HttpRequest>(std::move(request));
        shared_->threads->PostLong([shared = shared_, waiting, reply, compression, json] {
          CallHandler(*shared, std::move(*waiting), reply, compression);
          if (json > kMuchMemory) ReturnFreedMemory();
        });
        return Status::Ok();
      });
      if (!posted.ok()) reply->Send(ErrorResponse(503, posted.message()));
    } else {
      CallHandler(*shared_, std::move(request), reply, compression);
    }
    if (!answered_.load(std::memory_order_relaxed)) NoticeDisconnect();
  }

  static void CallHandler(const HttpServer::Shared& shared, HttpRequest request,
                          const std::shared_ptr<OneReply<Way>>& reply,
                          const std::optional<Compression>& compression) {
    const Status handled = CatchExceptions([&] {
      shared.handler(std::move(request),
                     [reply, compression, least = shared.compress_from](HttpResponse response) {
                       if (response.may_compress && compression) {
                         CompressAnswer(response, *compression, least);
                       }
                       reply->Send(std::move(response));
                     });
      return Status::Ok();
    });
    if (!handled.ok()) reply->Send(ErrorResponse(503, handled.message()));
  }

  // A client that closes its side while it waits is gone; one that sends its next request is not.
  void NoticeDisconnect() {
    socket_->async_wait_read([self = shared_from_this(), cancelled = cancelled_](error_code error) {
      if (error) return;
      char next;
      const auto got =
          recv(self->socket_->native_handle(), &next, sizeof(next), MSG_PEEK | MSG_DONTWAIT);
      const bool waits = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
      if (got <= 0 && !waits) cancelled->store(true, std::memory_order_relaxed);
    });
  }

  std::string BodyLimitText() const {
    return StrCat("the body is larger than the limit of ", shared_->limits.body_bytes, " bytes");
  }

  // Answers a request that was not read to its end, and closes.
  void Refuse(int status, std::string_view message) {
    HttpResponse response = ErrorResponse(status, message);
    if (status == 503) response.headers.emplace_back("Retry-After", "1");
    RefuseWith(std::move(response));
  }

  void RefuseWith(HttpResponse response) {
    keep_alive_ = false;
    linger_ = true;
    Write(std::move(response));
  }

  void Write(HttpResponse response) {
    if (shared_->announced.load(std::memory_order_relaxed)) keep_alive_ = false;
    const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
    head_text_ = StrCat(version_ == 10 ? "HTTP/1.0 " : "HTTP/1.1 ", response.status, " ",
                        ToString(reason), "\r\nServer: onnxd\r\n");
    if (!response.body.empty() || response.stream != nullptr)
      head_text_ += StrCat("Content-Type: ", response.content_type, "\r\n");
    for (const auto& [name, value] : response.headers)
      head_text_ += StrCat(name, ": ", value, "\r\n");
    const bool streams = response.stream != nullptr && !head_;
    chunked_ = streams && version_ == 11;
    if (streams && !chunked_) keep_alive_ = false;  // its end is that of the connection
    if (chunked_) {
      head_text_ += "Transfer-Encoding: chunked\r\n";
    } else if (response.status != 204 && !streams) {
      head_text_ += StrCat("Content-Length: ", response.body.size(), "\r\n");
    }
    if (!keep_alive_) {
      head_text_ += "Connection: close\r\n";
    } else if (version_ == 10) {
      head_text_ += "Connection: keep-alive\r\n";
    }
    head_text_ += "\r\n";
    if (streams) return WriteStream(std::move(response));
    if (!head_) body_text_ = std::move(response.body);
    WriteSome(&Session::OnWritten);
  }

  // The stream and the session hold each other until its end, or that of the connection.
  void WriteStream(HttpResponse response) {
    stream_ = std::move(response.stream);
    stream_->Attach([self = shared_from_this()] {
      asio::post(self->socket_->get_executor(), [self] {
        if (std::exchange(self->awaits_stream_, false)) self->WritePieces({});
      });
    });
    if (!response.body.empty()) body_text_ = PieceOf(std::move(response.body));
    WriteSome(&Session::WritePieces);
  }

  // RFC 9112, 7.1.
  std::string PieceOf(std::string bytes) const {
    if (!chunked_) return bytes;
    std::array<char, 16> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), bytes.size(), 16);
    return StrCat(std::string_view(digits.data(), end.ptr), "\r\n", bytes, "\r\n");
  }

  // What came meanwhile; without it, or its end, waits for the stream.
  void WritePieces(error_code) {
    HttpStream::Taken taken = stream_->Take();
    if (taken.bytes.empty() && !taken.ended) {
      awaits_stream_ = true;
      return ExpireNever();
    }
    if (!taken.bytes.empty()) body_text_ = PieceOf(std::move(taken.bytes));
    if (!taken.ended) return WriteSome(&Session::WritePieces);
    DropStream();
    if (chunked_) body_text_ += "0\r\n\r\n";
    if (body_text_.empty()) return OnWritten({});
    WriteSome(&Session::OnWritten);
  }

  void DropStream() {
    if (stream_ == nullptr) return;
    stream_->Detach();
    stream_.reset();
    awaits_stream_ = false;
  }

  // Writes head_text_ and body_text_. Each piece has the whole write timeout: a client that takes
  // nothing for that long is dropped.
  void WriteSome(Next next) {
    const size_t head_done = std::min(written_, head_text_.size());
    const std::array<asio::const_buffer, 2> rest = {
        asio::buffer(head_text_) + head_done,
        asio::buffer(asio::buffer(body_text_) + (written_ - head_done), kTurnBytes)};
    ExpireAfter(seconds(shared_->limits.write_timeout_s));
    socket_->async_write_some(
        rest, [self = shared_from_this(), next](error_code error, size_t bytes) {
          if (error) return self->Close();
          self->written_ += bytes;
          if (self->written_ < self->head_text_.size() + self->body_text_.size()) {
            return self->WriteSome(next);
          }
          self->written_ = 0;
          self->head_text_.clear();
          std::string().swap(self->body_text_);
          (self.get()->*next)({});
        });
  }

  void OnWritten(error_code) {
    if (keep_alive_) return NextRequest();
    if (linger_) return Linger();
    Close();
  }

  // Half-closes and reads on for a moment: closing with unread bytes would reset the connection
  // before the client has read the answer.
  void Linger() {
    socket_->ShutdownSend();
    ExpireAfter(seconds(2));
    LingerSome({});
  }

  void LingerSome(error_code error) {
    lingered_ += buffer_.size();
    buffer_.consume(buffer_.size());
    if (error || lingered_ > kMaxLingerBytes) return Close();
    ReadMore(&Session::LingerSome);
  }

  void FinishRequest() {
    if (admitted_ > 0) shared_->budget.release(admitted_);
    admitted_ = 0;
    body_ = BodyBuffer();
    if (busy_) shared_->busy.fetch_sub(1, std::memory_order_release);
    busy_ = false;
  }

  void Close() {
    if (stream_ != nullptr && cancelled_ != nullptr) {
      cancelled_->store(true, std::memory_order_relaxed);
    }
    DropStream();
    FinishRequest();
    socket_->Close();
    timer_.cancel();
  }

  const std::unique_ptr<Connection> socket_;
  asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, Connection::executor_type> timer_;
  bool expired_ = false;
  std::shared_ptr<HttpServer::Shared> shared_;
  const std::string client_;       // its address
  const std::string certificate_;  // its common name
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::string head_text_, body_text_;
  size_t written_ = 0;
  size_t received_ = 0;                      // bytes
  http::request_header<> without_trailers_;  // of a request in chunks
  BodyBuffer body_;
  int64_t admitted_ = 0;
  Clock::time_point arrived_;
  int64_t requests_ = 0;
  const Clock::time_point end_of_age_;
  size_t lingered_ = 0;
  unsigned version_ = 11;
  std::shared_ptr<std::atomic<bool>> cancelled_;
  std::atomic<bool> busy_{false}, answered_{false};
  std::atomic<int64_t> idle_since_{kAtWork};
  bool keep_alive_ = false, head_ = false, linger_ = false;
  std::shared_ptr<HttpStream> stream_;  // of the answer that is being written; may be null
  bool chunked_ = false, awaits_stream_ = false;
};

}  // namespace

Session* HttpServer::Shared::LongestIdle(const std::string& client) const {
  Session* longest = nullptr;
  const auto rank = [this](const Session& one) {
    return std::tuple(-clients.Of(one.client()), one.idle_since());
  };
  for (Session* const one : sessions) {
    if (one->idle_since() == Session::kAtWork) continue;
    if (!client.empty() && one->client() != client) continue;
    if (longest == nullptr || rank(*one) < rank(*longest)) longest = one;
  }
  return longest;
}

HttpServer::HttpServer(const ServerOptions& options, IoThreads& threads,
                       const TrustedProxies& proxies, BodyBudget budget, ServerMetrics& metrics,
                       HttpHandler handler, HttpRefuse refuse)
    : shared_(std::make_shared<Shared>()) {
  shared_->refuse = std::move(refuse);
  shared_->threads = &threads;
  shared_->proxies = &proxies;
  shared_->limits = options.limits;
  shared_->compress_from = options.server.compress_from_bytes;
  shared_->budget = std::move(budget);
  shared_->metrics = &metrics;
  shared_->handler = std::move(handler);
}

HttpServer::~HttpServer() = default;

void HttpServer::Serve(std::unique_ptr<Connection> socket) {
  auto session = std::make_shared<Session>(std::move(socket), shared_);
  std::shared_ptr<Session> evicted;
  {
    std::lock_guard lock(shared_->mutex);
    const bool has_most =
        shared_->clients.HasMost(session->client(), shared_->limits, *shared_->proxies);
    if (has_most || static_cast<int64_t>(shared_->sessions.size()) >= shared_->limits.connections) {
      Session* const idle = shared_->LongestIdle(has_most ? session->client() : "");
      if (idle == nullptr) return;  // the new one is closed
      idle->MarkEvicted();
      evicted = idle->weak_from_this().lock();
    }
    shared_->sessions.insert(session.get());
    shared_->clients.Enter(session->client());
  }
  if (evicted) evicted->CloseIfIdle();
  session->Start();
}

void HttpServer::AnnounceDrain() { shared_->announced.store(true, std::memory_order_relaxed); }

void HttpServer::BeginDrain() {
  AnnounceDrain();
  shared_->draining.store(true, std::memory_order_relaxed);
  std::vector<std::shared_ptr<Session>> sessions;
  {
    std::lock_guard lock(shared_->mutex);
    for (Session* session : shared_->sessions) {
      if (auto held = session->weak_from_this().lock()) sessions.push_back(std::move(held));
    }
  }
  for (const auto& session : sessions) session->CloseIfIdle();
}

int64_t HttpServer::busy() const { return shared_->busy.load(std::memory_order_acquire); }

}  // namespace onnxd
