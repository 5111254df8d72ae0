#include "server/grpc/grpc_server.h"

#include <nghttp2/nghttp2.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <map>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "runtime/base/exceptions.h"
#include "runtime/base/str_cat.h"
#include "server/grpc/grpc_framing.h"
#include "server/net/one_reply.h"

namespace onnxd {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 64 * 1024;
constexpr size_t kWriteBytes = 256 * 1024;
constexpr size_t kMaxHeaderBytes = 16 * 1024;
constexpr size_t kMaxHeaders = 100;
constexpr uint32_t kMaxStreams = 1024;
constexpr int32_t kStreamWindow = 1 << 20;
constexpr int32_t kConnectionWindow = 16 << 20;
constexpr auto kFirstMessageTimeout = seconds(30);

class Session;

}  // namespace

struct GrpcServer::Shared {
  ServerOptions::Limits limits;
  MessageBudget budget;
  ServerMetrics* metrics;
  GrpcHandler handler;
  std::atomic<int64_t> busy{0};
  std::mutex mutex;
  std::unordered_set<Session*> sessions;  // guarded by mutex
};

namespace {

// One call.
struct Stream {
  std::string path, content_type, encoding, authorization, api_key;
  bool post = false;
  size_t headers = 0, header_bytes = 0;
  std::string body;
  int64_t admitted = 0;
  std::optional<Clock::time_point> deadline;
  Status refusal;  // why the call will not be handled
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  bool dispatched = false;
  bool refused = false;  // answered before its end
  Clock::time_point opened = Clock::now();
  std::string answer;  // framed message being written
  size_t answered = 0;
};

// One connection. All methods run on its strand.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(TcpSocket socket, std::shared_ptr<GrpcServer::Shared> shared)
      : socket_(std::move(socket)),
        timer_(socket_.get_executor()),
        shared_(std::move(shared)),
        client_(AddressOf(socket_)),
        read_buffer_(kReadBytes) {
    shared_->metrics->ConnectionOpened(Protocol::kGrpc);
  }

  ~Session() {
    {
      std::lock_guard lock(shared_->mutex);
      shared_->sessions.erase(this);
    }
    for (auto& [id, stream] : streams_) Forget(stream);
    nghttp2_session_del(session_);
    shared_->metrics->ConnectionClosed(Protocol::kGrpc);
  }

  void Start() {
    asio::dispatch(socket_.get_executor(), [self = shared_from_this()] {
      if (!self->CreateSession()) return self->Close();
      self->last_activity_ = Clock::now();
      self->CheckTimeouts();
      self->Read();
      self->Flush();
    });
  }

  void SendGoAway() {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      if (self->session_ == nullptr || self->closed_) return;
      nghttp2_submit_goaway(self->session_, NGHTTP2_FLAG_NONE,
                            nghttp2_session_get_last_proc_stream_id(self->session_),
                            NGHTTP2_NO_ERROR, nullptr, 0);
      self->draining_ = true;
      self->Flush();
    });
  }

 private:
  bool CreateSession() {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_option* option = nullptr;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) return false;
    nghttp2_session_callbacks_set_on_begin_headers_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          return Self(self).OnBeginHeaders(frame);
        });
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks,
        [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
           const uint8_t* value, size_t value_size, uint8_t, void* self) {
          return Self(self).OnHeader(frame, {reinterpret_cast<const char*>(name), name_size},
                                     {reinterpret_cast<const char*>(value), value_size});
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks,
        [](nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t size, void* self) {
          return Self(self).OnData(id, {reinterpret_cast<const char*>(data), size});
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          return Self(self).OnFrame(frame);
        });
    nghttp2_session_callbacks_set_on_frame_send_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          return Self(self).OnFrameSent(frame);
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        callbacks, [](nghttp2_session*, int32_t id, uint32_t, void* self) {
          return Self(self).OnStreamClose(id);
        });
    int failed = nghttp2_option_new(&option);
    if (failed == 0) {
      // Calls whose deadlines expire are reset by honest clients too, ten thousand a second.
      nghttp2_option_set_stream_reset_rate_limit(option, 100000, 20000);
      nghttp2_option_set_max_outbound_ack(option, 1000);
      failed = nghttp2_session_server_new2(&session_, callbacks, this, option);
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    if (failed != 0) return false;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMaxStreams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, static_cast<uint32_t>(kStreamWindow)},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<uint32_t>(kMaxHeaderBytes)}};
    return nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings)) ==
               0 &&
           nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0,
                                                 kConnectionWindow) == 0;
  }

  static Session& Self(void* self) { return *static_cast<Session*>(self); }

  Stream* Find(int32_t id) {
    const auto found = streams_.find(id);
    return found == streams_.end() ? nullptr : &found->second;
  }

  // --- callbacks of nghttp2, all inside nghttp2_session_mem_recv or mem_send ---

  int OnBeginHeaders(const nghttp2_frame* frame) {
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      streams_.try_emplace(frame->hd.stream_id);
    }
    return 0;
  }

  int OnHeader(const nghttp2_frame* frame, std::string_view name, std::string_view value) {
    Stream* stream = Find(frame->hd.stream_id);
    if (stream == nullptr) return 0;
    stream->header_bytes += name.size() + value.size() + 32;
    if (++stream->headers > kMaxHeaders || stream->header_bytes > kMaxHeaderBytes) {
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // resets this stream alone
    }
    if (name == ":path") {
      stream->path = value;
    } else if (name == ":method") {
      stream->post = value == "POST";
    } else if (name == "content-type") {
      stream->content_type = value;
    } else if (name == "grpc-encoding") {
      stream->encoding = value;
    } else if (name == "authorization") {
      stream->authorization = value;
    } else if (name == "x-api-key") {
      stream->api_key = value;
    } else if (name == "grpc-timeout") {
      const auto timeout = ParseGrpcTimeout(value);
      if (timeout) {
        stream->deadline = stream->opened + *timeout;
      } else {
        stream->refusal = InvalidArgument("malformed grpc-timeout");
      }
    }
    return 0;
  }

  int OnData(int32_t id, std::string_view data) {
    Stream* stream = Find(id);
    if (stream == nullptr || !stream->refusal.ok()) return 0;
    const auto size = static_cast<int64_t>(data.size());
    if (static_cast<int64_t>(stream->body.size()) + size >
        shared_->limits.body_bytes + static_cast<int64_t>(kGrpcPrefixBytes)) {
      stream->refusal = ResourceExhausted(
          StrCat("the message is larger than the limit of ", shared_->limits.body_bytes, " bytes"));
    } else if (!shared_->budget.admit(size)) {
      stream->refusal = Unavailable("too many request bytes are in memory");
    } else {
      stream->admitted += size;
      stream->body += data;
      return 0;
    }
    Refuse(id, *stream);
    return 0;
  }

  int OnFrame(const nghttp2_frame* frame) {
    const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    const bool carries = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
    if (!carries) return 0;
    Stream* stream = Find(frame->hd.stream_id);
    if (stream == nullptr || stream->dispatched) return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && stream->refusal.ok()) {
      if (!stream->post || stream->content_type.rfind("application/grpc", 0) != 0) {
        return RefuseContentType(frame->hd.stream_id, *stream);
      }
    }
    if (ends) Dispatch(frame->hd.stream_id, *stream);
    return 0;
  }

  // A refused call has its answer: now the client is told to stop sending.
  int OnFrameSent(const nghttp2_frame* frame) {
    const Stream* stream = Find(frame->hd.stream_id);
    if (frame->hd.type == NGHTTP2_HEADERS && stream != nullptr && stream->refused) {
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    }
    return 0;
  }

  int OnStreamClose(int32_t id) {
    const auto found = streams_.find(id);
    if (found == streams_.end()) return 0;
    found->second.cancelled->store(true, std::memory_order_relaxed);
    Forget(found->second);
    streams_.erase(found);
    return 0;
  }

  // --- calls ---

  // Gives back what a stream holds of shared counters.
  void Forget(Stream& stream) {
    if (stream.admitted > 0) shared_->budget.release(stream.admitted);
    stream.admitted = 0;
    if (stream.dispatched) shared_->busy.fetch_sub(1, std::memory_order_release);
    stream.dispatched = false;
    stream.cancelled->store(true, std::memory_order_relaxed);
  }

  void MarkDispatched(Stream& stream) {
    stream.dispatched = true;
    shared_->busy.fetch_add(1, std::memory_order_relaxed);
  }

  // Answers before the request has ended.
  void Refuse(int32_t id, Stream& stream) {
    MarkDispatched(stream);
    stream.refused = true;
    std::string().swap(stream.body);
    SubmitTrailersOnly(id, stream.refusal);
  }

  int RefuseContentType(int32_t id, Stream& stream) {
    MarkDispatched(stream);
    const std::string status = stream.post ? "415" : "405";
    const nghttp2_nv header = Header(":status", status);
    nghttp2_submit_response(session_, id, &header, 1, nullptr);
    return 0;
  }

  void Dispatch(int32_t id, Stream& stream) {
    MarkDispatched(stream);
    Status refusal = stream.refusal;
    if (refusal.ok() && stream.deadline && Clock::now() >= *stream.deadline) {
      refusal = DeadlineExceeded("the deadline had expired on arrival");
    }
    if (!refusal.ok()) return SubmitTrailersOnly(id, refusal);
    Result<std::string> message = UnframeGrpcMessage(stream.body, stream.encoding);
    std::string().swap(stream.body);
    if (!message.ok()) return SubmitTrailersOnly(id, message.status());
    GrpcCall call;
    call.path = stream.path;
    call.message = std::move(*message);
    call.arrived = stream.opened;
    call.deadline = stream.deadline;
    call.cancelled = stream.cancelled;
    call.client = client_;
    call.authorization = std::move(stream.authorization);
    call.api_key = std::move(stream.api_key);
    const auto reply =
        std::make_shared<OneReply<Way>>(Way{shared_from_this(), id, stream.cancelled});
    const Status handled = CatchExceptions([&] {
      shared_->handler(std::move(call),
                       [reply](Result<std::string> answer) { reply->Send(std::move(answer)); });
      return Status::Ok();
    });
    if (!handled.ok()) reply->Send(Unavailable(std::string(handled.message())));
  }

  // Where an answer goes, for OneReply.
  struct Way {
    using Answer = Result<std::string>;
    std::shared_ptr<Session> session;
    int32_t id;
    std::shared_ptr<const std::atomic<bool>> cancelled;

    void Post(Result<std::string> answer) {
      asio::post(session->socket_.get_executor(),
                 [session = session, id = id, cancelled = cancelled,
                  answer = std::move(answer)]() mutable {
                   session->Answer(id, *cancelled, std::move(answer));
                 });
    }
    Result<std::string> Lost() { return Unavailable("no memory"); }
    void Break() { shutdown(session->socket_.native_handle(), SHUT_RDWR); }
  };

  void Answer(int32_t id, const std::atomic<bool>& cancelled, Result<std::string> answer) {
    Stream* stream = Find(id);
    if (closed_ || stream == nullptr || cancelled.load(std::memory_order_relaxed)) return;
    if (!answer.ok()) {
      SubmitTrailersOnly(id, answer.status());
    } else {
      stream->answer = FrameGrpcMessage(*answer);
      const std::array<nghttp2_nv, 2> headers = {Header(":status", "200"),
                                                 Header("content-type", "application/grpc")};
      nghttp2_data_provider provider{};
      provider.source.ptr = this;
      provider.read_callback = ReadAnswer;
      nghttp2_submit_response(session_, id, headers.data(), headers.size(), &provider);
    }
    Flush();
  }

  static ssize_t ReadAnswer(nghttp2_session* session, int32_t id, uint8_t* out, size_t size,
                            uint32_t* flags, nghttp2_data_source* source, void*) {
    Stream* stream = static_cast<Session*>(source->ptr)->Find(id);
    if (stream == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    const size_t count = std::min(size, stream->answer.size() - stream->answered);
    std::copy_n(stream->answer.data() + stream->answered, count, out);
    stream->answered += count;
    if (stream->answered == stream->answer.size()) {
      *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
      const nghttp2_nv status = Header("grpc-status", "0");
      nghttp2_submit_trailer(session, id, &status, 1);
    }
    return static_cast<ssize_t>(count);
  }

  void SubmitTrailersOnly(int32_t id, const Status& status) {
    const std::string code = StrCat(static_cast<int>(status.code()));
    const std::string message = EncodeGrpcMessage(status.message());
    const std::array<nghttp2_nv, 4> headers = {
        Header(":status", "200"), Header("content-type", "application/grpc"),
        Header("grpc-status", code), Header("grpc-message", message)};
    nghttp2_submit_response(session_, id, headers.data(), headers.size(), nullptr);
  }

  static nghttp2_nv Header(std::string_view name, std::string_view value) {
    return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
            reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
            NGHTTP2_NV_FLAG_NONE};
  }

  // --- the socket ---

  void Read() {
    socket_.async_read_some(asio::buffer(read_buffer_),
                            [self = shared_from_this()](error_code error, size_t bytes) {
                              if (error || self->closed_) return self->Close();
                              self->OnBytes(bytes);
                            });
  }

  void OnBytes(size_t bytes) {
    last_activity_ = Clock::now();
    const ssize_t used = nghttp2_session_mem_recv(session_, read_buffer_.data(), bytes);
    if (used < 0) {
      fatal_ = true;  // the session queued a GOAWAY where it could
      return Flush();
    }
    Flush();
    if (!closed_) Read();
  }

  // Writes what the session has to say; one write at a time.
  void Flush() {
    if (writing_ || closed_) return;
    write_buffer_.clear();
    while (write_buffer_.size() < kWriteBytes) {
      const uint8_t* data = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session_, &data);
      if (size < 0) return Close();
      if (size == 0) break;
      write_buffer_.insert(write_buffer_.end(), data, data + size);
    }
    if (write_buffer_.empty()) {
      const bool over =
          nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0;
      if (fatal_ || over || (draining_ && streams_.empty())) Close();
      return;
    }
    writing_ = true;
    write_started_ = Clock::now();
    asio::async_write(socket_, asio::buffer(write_buffer_),
                      [self = shared_from_this()](error_code error, size_t) {
                        self->writing_ = false;
                        if (error) return self->Close();
                        self->Flush();
                      });
  }

  // Once a second: stalled writes, idle connections, calls without a whole message.
  void CheckTimeouts() {
    timer_.expires_after(seconds(1));
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (error || self->closed_) return;
      const auto now = Clock::now();
      const ServerOptions::Limits& limits = self->shared_->limits;
      if (self->writing_ && now - self->write_started_ > seconds(limits.write_timeout_s)) {
        return self->Close();
      }
      if (self->streams_.empty() && now - self->last_activity_ > seconds(limits.idle_timeout_s)) {
        return self->Close();
      }
      for (auto& [id, stream] : self->streams_) {
        if (!stream.dispatched &&
            now - stream.opened > kFirstMessageTimeout + seconds(stream.admitted / (16 * 1024))) {
          nghttp2_submit_rst_stream(self->session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
        }
      }
      self->Flush();
      if (!self->closed_) self->CheckTimeouts();
    });
  }

  void Close() {
    if (closed_) return;
    closed_ = true;
    for (auto& [id, stream] : streams_) Forget(stream);
    streams_.clear();
    error_code ignored;
    timer_.cancel(ignored);
    socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

  TcpSocket socket_;
  asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, TcpSocket::executor_type> timer_;
  std::shared_ptr<GrpcServer::Shared> shared_;
  const std::string client_;  // its address
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, Stream> streams_;
  std::vector<uint8_t> read_buffer_, write_buffer_;
  Clock::time_point last_activity_, write_started_;
  bool writing_ = false, closed_ = false, fatal_ = false, draining_ = false;
};

}  // namespace

GrpcServer::GrpcServer(const ServerOptions::Limits& limits, MessageBudget budget,
                       ServerMetrics& metrics, GrpcHandler handler)
    : shared_(std::make_shared<Shared>()) {
  shared_->limits = limits;
  shared_->budget = std::move(budget);
  shared_->metrics = &metrics;
  shared_->handler = std::move(handler);
}

GrpcServer::~GrpcServer() = default;

void GrpcServer::Serve(TcpSocket socket) {
  auto session = std::make_shared<Session>(std::move(socket), shared_);
  {
    std::lock_guard lock(shared_->mutex);
    if (static_cast<int64_t>(shared_->sessions.size()) >= shared_->limits.connections) return;
    shared_->sessions.insert(session.get());
  }
  session->Start();
}

void GrpcServer::BeginDrain() {
  std::vector<std::shared_ptr<Session>> sessions;
  {
    std::lock_guard lock(shared_->mutex);
    for (Session* session : shared_->sessions) {
      if (auto held = session->weak_from_this().lock()) sessions.push_back(std::move(held));
    }
  }
  for (const auto& session : sessions) session->SendGoAway();
}

int64_t GrpcServer::busy() const { return shared_->busy.load(std::memory_order_acquire); }

}  // namespace onnxd
