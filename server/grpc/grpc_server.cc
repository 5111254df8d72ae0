#include "server/grpc/grpc_server.h"

#include <nghttp2/nghttp2.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "runtime/base/exceptions.h"
#include "runtime/base/machine.h"
#include "runtime/base/str_cat.h"
#include "server/grpc/grpc_framing.h"
#include "server/grpc/reset_pace.h"
#include "server/inference/request_id.h"
#include "server/net/client_connections.h"
#include "server/net/connection_age.h"
#include "server/net/one_reply.h"

namespace onnxd {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 64 * 1024;
constexpr size_t kWriteBytes = 256 * 1024;
constexpr size_t kAskFirst = 64 * 1024;  // bytes of a message
constexpr size_t kMaxHeaderBytes = 16 * 1024;
constexpr size_t kMaxHeaders = 100;
constexpr uint32_t kMaxStreams = 1024;
constexpr int32_t kStreamWindow = 1 << 20;
constexpr int32_t kConnectionWindow = 16 << 20;
constexpr auto kFirstMessageTimeout = seconds(30);
constexpr auto kStallTimeout = seconds(30);  // of a client that takes none of an answer
constexpr size_t kMostUnanswered = 64;       // messages of one stream
constexpr size_t kMostUnsentBytes = 16 << 20;
constexpr int64_t kReturnMemoryEach = 32;  // connections given up

class Session;

}  // namespace

struct GrpcServer::Shared {
  ServerOptions::Limits limits;
  MessageBudget budget;
  ServerMetrics* metrics;
  GrpcHandlers handlers;
  std::atomic<int64_t> busy{0};
  std::atomic<int64_t> given_up{0};  // connections that did nothing but reset calls
  std::mutex mutex;
  const TrustedProxies* proxies;
  Tracer* tracer;
  std::unordered_set<Session*> sessions;  // guarded by mutex
  ClientConnections clients;              // guarded by mutex
};

namespace {

// One call.
struct Stream {
  std::string path, content_type, encoding, authorization, api_key, request_id, forwarded_for,
      traceparent, tracestate, load_report;
  TraceContext trace;
  std::string returned_trace;  // traceparent of its answer; empty: none
  bool post = false, error_as_status = false;
  size_t headers = 0, header_bytes = 0;
  std::string body;
  int64_t admitted = 0;
  std::optional<Clock::time_point> deadline;
  Status refusal;  // why the call will not be handled
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  bool dispatched = false;
  Clock::time_point opened = Clock::now();
  std::list<std::string> answers;          // framed messages to write
  size_t answered = 0;                     // bytes of the first
  size_t unsent = 0;                       // bytes of all
  Clock::time_point taken = Clock::now();  // the client took some, or there was nothing to take
  // Of streaming calls: what messages mean, and how many wait for their answer.
  std::unique_ptr<GrpcStreamHandler> handler;
  size_t unread = 0;          // bytes the client may send anew once fewer wait
  bool ended = false;         // by the client
  bool answering = false;     // response headers are under way
  std::optional<Status> end;  // of the answers
  std::list<int64_t> sizes;   // what is admitted for each of the unanswered
};

// One connection. All methods run on its I/O thread.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::unique_ptr<Connection> socket, std::shared_ptr<GrpcServer::Shared> shared)
      : socket_(std::move(socket)),
        timer_(socket_->get_executor()),
        read_timer_(socket_->get_executor()),
        shared_(std::move(shared)),
        client_(socket_->client()),
        certificate_(socket_->certificate_name()),
        end_of_age_(EndOfAge(shared_->limits, Clock::now())) {
    shared_->metrics->ConnectionOpened(Protocol::kGrpc);
  }

  ~Session() {
    {
      std::lock_guard lock(shared_->mutex);
      if (shared_->sessions.erase(this) > 0) shared_->clients.Leave(client_);
    }
    for (auto& [id, stream] : streams_) Forget(stream);
    nghttp2_session_del(session_);
    shared_->metrics->ConnectionClosed(Protocol::kGrpc);
    // Their clients come again; what they leave is in pieces.
    if (pace_.IsHopeless() && shared_->given_up.fetch_add(1) % kReturnMemoryEach == 0) {
      ReturnFreedMemory();
    }
  }

  void Start() {
    asio::dispatch(socket_->get_executor(), [self = shared_from_this()] {
      if (!self->CreateSession()) return self->Close();
      self->last_activity_ = Clock::now();
      self->CheckTimeouts();
      self->Read();
      self->Flush();
    });
  }

  const std::string& client() const { return client_; }

  void SendGoAway() {
    asio::post(socket_->get_executor(), [self = shared_from_this()] {
      if (self->session_ == nullptr || self->closed_) return;
      self->SubmitGoAway(NGHTTP2_NO_ERROR);
      self->draining_ = true;
      for (auto& [id, stream] : self->streams_) self->CheckStream(id, stream, Clock::now());
      self->Flush();
      // After what the handlers had to say.
      asio::post(self->socket_->get_executor(), [self] {
        for (auto& [id, stream] : self->streams_) self->EndIdleStream(id, stream);
        if (!self->closed_) self->Flush();
      });
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
        callbacks, [](nghttp2_session*, int32_t id, uint32_t error, void* self) {
          return Self(self).OnStreamClose(id, error != NGHTTP2_NO_ERROR);
        });
    int failed = nghttp2_option_new(&option);
    if (failed == 0) {
      // Calls whose deadlines expire are reset by honest clients too, ten thousand a second.
      nghttp2_option_set_stream_reset_rate_limit(option, 100000, 20000);
      nghttp2_option_set_max_outbound_ack(option, 1000);
      // They would be kept for priorities, which nothing here has.
      nghttp2_option_set_no_closed_streams(option, 1);
      // Who sends faster than is answered waits.
      nghttp2_option_set_no_auto_window_update(option, 1);
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
      pace_.CallOpened();
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
    } else if (name == "x-forwarded-for") {
      stream->forwarded_for += StrCat(stream->forwarded_for.empty() ? "" : ",", value);
    } else if (name == "x-request-id") {
      stream->request_id = value;
    } else if (name == "traceparent") {
      stream->traceparent = value;
    } else if (name == "tracestate") {
      stream->tracestate = value;
    } else if (name == "endpoint-load-metrics-format") {
      stream->load_report = value;
    } else if (name == "triton_grpc_error") {
      stream->error_as_status = value == "true";
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
    if (stream != nullptr && stream->handler != nullptr) return OnStreamData(id, *stream, data);
    nghttp2_session_consume(session_, id, data.size());
    if (stream == nullptr || !stream->refusal.ok()) return 0;
    stream->refusal = CheckMore(*stream, data.size());
    if (stream->refusal.ok()) {
      stream->body += data;
    } else {
      Refuse(id, *stream);
    }
    return 0;
  }

  // Whether a unary call's message may have so many bytes more, which then count as admitted.
  Status CheckMore(Stream& stream, size_t bytes) {
    const size_t size = stream.body.size() + bytes;
    if (static_cast<int64_t>(size) >
        shared_->limits.body_bytes + static_cast<int64_t>(kGrpcPrefixBytes)) {
      return ResourceExhausted(
          StrCat("the message is larger than the limit of ", shared_->limits.body_bytes, " bytes"));
    }
    if (stream.body.size() <= kAskFirst && size > kAskFirst) {
      ONNXD_RETURN_IF_ERROR(shared_->handlers.check(CallOf(stream)));
    }
    if (Admit(stream, static_cast<int64_t>(bytes))) return Status::Ok();
    return Unavailable("too many request bytes are in memory");
  }

  int OnFrame(const nghttp2_frame* frame) {
    const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    const bool carries = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
    if (!carries) return 0;
    const int32_t id = frame->hd.stream_id;
    Stream* stream = Find(id);
    if (stream == nullptr) return 0;
    stream->ended = stream->ended || ends;
    if (stream->dispatched) {
      if (ends && stream->handler != nullptr) OnStreamEnd(id, *stream);
      return 0;
    }
    if (frame->hd.type == NGHTTP2_HEADERS) Identify(*stream);
    if (frame->hd.type == NGHTTP2_HEADERS && stream->refusal.ok()) {
      if (!stream->post || stream->content_type.rfind("application/grpc", 0) != 0) {
        return RefuseContentType(id, *stream);
      }
      if (shared_->handlers.is_streaming(stream->path)) {
        OpenStream(id, *stream);
        return 0;
      }
    }
    if (ends) Dispatch(id, *stream);
    return 0;
  }

  // Its head is there.
  void Identify(Stream& stream) {
    stream.request_id = RequestId(stream.request_id);
    stream.trace = shared_->tracer->Begin(stream.traceparent, stream.tracestate);
    stream.returned_trace = ReturnedTraceParent(stream.trace);
  }

  // A call was answered before its end: now the client is told to stop sending.
  int OnFrameSent(const nghttp2_frame* frame) {
    const Stream* stream = Find(frame->hd.stream_id);
    if (frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
        stream != nullptr && !stream->ended) {
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    }
    return 0;
  }

  int OnStreamClose(int32_t id, bool was_reset) {
    const auto found = streams_.find(id);
    if (found == streams_.end()) return 0;
    if (was_reset) {
      const Stream& stream = found->second;
      pace_.CallReset(stream.opened,
                      stream.deadline ? *stream.deadline - stream.opened : Clock::duration::zero(),
                      Clock::now());
    }
    found->second.cancelled->store(true, std::memory_order_relaxed);
    Forget(found->second);
    streams_.erase(found);
    return 0;
  }

  // --- calls ---

  bool Admit(Stream& stream, int64_t bytes) {
    if (!shared_->budget.admit(bytes)) return false;
    stream.admitted += bytes;
    return true;
  }

  // All but its message.
  GrpcCall CallOf(const Stream& stream) const {
    GrpcCall call;
    call.path = stream.path;
    call.origin.arrived = stream.opened;
    call.deadline = stream.deadline;
    call.origin.cancelled = stream.cancelled;
    call.origin.client = shared_->proxies->ClientOf(client_, stream.forwarded_for);
    call.certificate = certificate_;
    call.authorization = stream.authorization;
    call.api_key = stream.api_key;
    call.origin.id = stream.request_id;
    call.origin.trace = stream.trace;
    call.stream_error_as_status = stream.error_as_status;
    return call;
  }

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
    const std::function<bool(int64_t)> admit = [&](int64_t bytes) { return Admit(stream, bytes); };
    Result<std::string> message =
        UnframeGrpcMessage(stream.body, {stream.encoding, shared_->limits.body_bytes, admit});
    std::string().swap(stream.body);
    if (!message.ok()) return SubmitTrailersOnly(id, message.status());
    GrpcCall call = CallOf(stream);
    call.message = std::move(*message);
    const auto reply =
        std::make_shared<OneReply<Way>>(Way{shared_from_this(), id, stream.cancelled});
    const Status handled = CatchExceptions([&] {
      shared_->handlers.unary(
          std::move(call), [reply](Result<std::string> answer) { reply->Send(std::move(answer)); });
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
      asio::post(session->socket_->get_executor(),
                 [session = session, id = id, cancelled = cancelled,
                  answer = std::move(answer)]() mutable {
                   session->Answer(id, *cancelled, std::move(answer));
                 });
    }
    Result<std::string> Lost() { return Unavailable("no memory"); }
    void Break() { shutdown(session->socket_->native_handle(), SHUT_RDWR); }
  };

  void Answer(int32_t id, const std::atomic<bool>& cancelled, Result<std::string> answer) {
    Stream* stream = Find(id);
    if (closed_ || stream == nullptr || cancelled.load(std::memory_order_relaxed)) return;
    if (!answer.ok()) {
      SubmitTrailersOnly(id, answer.status());
    } else {
      stream->end = Status::Ok();
      Queue(id, *stream, *answer);
    }
    Flush();
  }

  void Queue(int32_t id, Stream& stream, std::string_view message) {
    if (stream.answers.empty()) stream.taken = Clock::now();
    stream.answers.push_back(FrameGrpcMessage(message));
    stream.unsent += stream.answers.back().size();
    if (std::exchange(stream.answering, true)) {
      nghttp2_session_resume_data(session_, id);
      return;
    }
    const std::array<nghttp2_nv, 5> headers = {
        Header(":status", "200"), Header("content-type", "application/grpc"),
        Header("grpc-accept-encoding", "identity,gzip"), Header("x-request-id", stream.request_id),
        Header("traceparent", stream.returned_trace)};
    nghttp2_data_provider provider{};
    provider.source.ptr = this;
    provider.read_callback = ReadAnswer;
    nghttp2_submit_response(session_, id, headers.data(),
                            headers.size() - (stream.returned_trace.empty() ? 1 : 0), &provider);
  }

  static ssize_t ReadAnswer(nghttp2_session*, int32_t id, uint8_t* out, size_t size,
                            uint32_t* flags, nghttp2_data_source* source, void*) {
    Session& self = *static_cast<Session*>(source->ptr);
    Stream* stream = self.Find(id);
    if (stream == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (stream->answers.empty() && !stream->end) return NGHTTP2_ERR_DEFERRED;
    size_t count = 0;
    if (!stream->answers.empty()) {
      const std::string& first = stream->answers.front();
      count = std::min(size, first.size() - stream->answered);
      std::copy_n(first.data() + stream->answered, count, out);
      stream->answered += count;
      stream->unsent -= count;
      stream->taken = Clock::now();
      if (stream->answered == first.size()) {
        stream->answers.pop_front();
        stream->answered = 0;
        self.AllowMore(id, *stream);
      }
    }
    if (stream->answers.empty() && stream->end) {
      *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
      self.SubmitTrailers(id, *stream);
    }
    return static_cast<ssize_t>(count);
  }

  void SubmitTrailers(int32_t id, const Stream& stream) {
    const Status& status = *stream.end;
    const std::string code = StrCat(static_cast<int>(status.code()));
    const std::string message = EncodeGrpcMessage(status.message());
    const auto report =
        status.ok() ? shared_->handlers.load_report(stream.load_report) : std::nullopt;
    std::array<nghttp2_nv, 2> trailers = {Header("grpc-status", code)};
    size_t count = 1;
    if (!status.ok()) trailers[count++] = Header("grpc-message", message);
    if (report) trailers[count++] = Header(report->name, report->value);
    nghttp2_submit_trailer(session_, id, trailers.data(), count);
  }

  void SubmitTrailersOnly(int32_t id, const Status& status) {
    const std::string code = StrCat(static_cast<int>(status.code()));
    const std::string message = EncodeGrpcMessage(status.message());
    const Stream* stream = Find(id);
    const std::string_view request_id =
        stream == nullptr ? "" : std::string_view(stream->request_id);
    const std::string_view trace =
        stream == nullptr ? "" : std::string_view(stream->returned_trace);
    const std::array<nghttp2_nv, 6> headers = {
        Header(":status", "200"),           Header("content-type", "application/grpc"),
        Header("grpc-status", code),        Header("grpc-message", message),
        Header("x-request-id", request_id), Header("traceparent", trace)};
    nghttp2_submit_response(session_, id, headers.data(), headers.size() - (trace.empty() ? 1 : 0),
                            nullptr);
  }

  static nghttp2_nv Header(std::string_view name, std::string_view value) {
    return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
            reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
            NGHTTP2_NV_FLAG_NONE};
  }

  // --- streaming calls ---

  // A stream's way back, from any thread. What is sent is written in that order, which the order of
  // posts from different threads alone would not give.
  class Writer : public GrpcWriter, public std::enable_shared_from_this<Writer> {
   public:
    Writer(std::weak_ptr<Session> session, int32_t id, std::shared_ptr<std::atomic<bool>> cancelled)
        : session_(std::move(session)), id_(id), cancelled_(std::move(cancelled)) {}
    void Send(std::string message) override { Post({std::move(message), Status()}); }
    void Finish(Status status) override { Post({std::nullopt, std::move(status)}); }

   private:
    struct Outgoing {
      std::optional<std::string> message;
      Status end;  // without a message
    };

    void Post(Outgoing outgoing) {
      const auto session = session_.lock();
      if (session == nullptr) return;
      const Status posted = CatchExceptions([&] {
        {
          std::lock_guard lock(mutex_);
          outgoing_.push_back(std::move(outgoing));
        }
        asio::post(session->socket_->get_executor(),
                   [session, self = shared_from_this()] { self->Write(*session); });
        return Status::Ok();
      });
      if (!posted.ok()) shutdown(session->socket_->native_handle(), SHUT_RDWR);
    }

    void Write(Session& session) {
      std::deque<Outgoing> outgoing;
      {
        std::lock_guard lock(mutex_);
        outgoing.swap(outgoing_);
      }
      for (const Outgoing& next : outgoing) {
        Stream* stream = session.Find(id_);
        if (session.closed_ || stream == nullptr || *cancelled_) return;
        if (next.message) {
          session.SendOn(id_, *stream, *next.message);
        } else {
          session.FinishStream(id_, *stream, next.end);
        }
      }
      session.Flush();
    }

    const std::weak_ptr<Session> session_;
    const int32_t id_;
    const std::shared_ptr<std::atomic<bool>> cancelled_;
    std::mutex mutex_;
    std::deque<Outgoing> outgoing_;  // guarded by mutex_
  };

  void OpenStream(int32_t id, Stream& stream) {
    const GrpcCall call = CallOf(stream);
    Result<std::unique_ptr<GrpcStreamHandler>> handler = std::unique_ptr<GrpcStreamHandler>();
    const Status opened = CatchExceptions([&] {
      handler = shared_->handlers.open_stream(
          call, std::make_shared<Writer>(weak_from_this(), id, stream.cancelled));
      return handler.status();
    });
    MarkDispatched(stream);
    if (!opened.ok()) {
      stream.refusal = opened;
      return SubmitTrailersOnly(id, opened);
    }
    stream.handler = *std::move(handler);
    if (stream.ended) OnStreamEnd(id, stream);
  }

  int OnStreamData(int32_t id, Stream& stream, std::string_view data) {
    nghttp2_session_consume_connection(session_, data.size());
    stream.unread += data.size();
    if (stream.end) return 0;
    if (!Admit(stream, static_cast<int64_t>(data.size()))) {
      FinishStream(id, stream, Unavailable("too many request bytes are in memory"));
      return 0;
    }
    stream.body += data;
    ReadMessages(id, stream);
    AllowMore(id, stream);
    return 0;
  }

  void ReadMessages(int32_t id, Stream& stream) {
    while (!stream.end) {
      int64_t inflated = 0;
      const std::function<bool(int64_t)> admit = [&](int64_t bytes) {
        inflated += bytes;
        return Admit(stream, bytes);
      };
      const size_t before = stream.body.size();
      auto message =
          TakeGrpcMessage(stream.body, {stream.encoding, shared_->limits.body_bytes, admit});
      if (!message.ok()) return FinishStream(id, stream, message.status());
      if (!message->has_value()) return;
      stream.sizes.push_back(static_cast<int64_t>(before - stream.body.size()) + inflated);
      const Status handled = CatchExceptions([&] {
        stream.handler->OnMessage(std::move(**message));
        return Status::Ok();
      });
      if (!handled.ok()) return FinishStream(id, stream, handled);
    }
  }

  void AllowMore(int32_t id, Stream& stream) {
    if (stream.sizes.size() >= kMostUnanswered || stream.unsent > kMostUnsentBytes) return;
    if (stream.unread > 0) {
      nghttp2_session_consume_stream(session_, id, std::exchange(stream.unread, 0));
    }
  }

  void OnStreamEnd(int32_t id, Stream& stream) {
    if (stream.end) return;
    if (!stream.body.empty()) {
      return FinishStream(id, stream, Internal("the stream ended within a message"));
    }
    const Status handled = CatchExceptions([&] {
      stream.handler->OnEnd();
      return Status::Ok();
    });
    if (!handled.ok()) FinishStream(id, stream, handled);
  }

  void SendOn(int32_t id, Stream& stream, std::string_view message) {
    if (stream.end) return;
    if (!stream.sizes.empty()) {
      shared_->budget.release(stream.sizes.front());
      stream.admitted -= stream.sizes.front();
      stream.sizes.pop_front();
    }
    Queue(id, stream, message);
    AllowMore(id, stream);
    if (draining_) EndIdleStream(id, stream);
  }

  void FinishStream(int32_t id, Stream& stream, const Status& status) {
    if (stream.end) return;
    stream.end = status;
    if (stream.answering) {
      nghttp2_session_resume_data(session_, id);
    } else {
      SubmitTrailersOnly(id, status);
    }
  }

  void EndIdleStream(int32_t id, Stream& stream) {
    if (stream.handler == nullptr || !stream.sizes.empty()) return;
    FinishStream(id, stream, Unavailable("the server is draining"));
  }

  // --- the socket ---

  void Read() {
    const size_t most = pace_.ReadBytes(kReadBytes);
    if (read_buffer_.size() < most) read_buffer_.resize(most);
    socket_->async_read_some(asio::buffer(read_buffer_, most),
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
    if (pace_.IsHopeless()) {
      SubmitGoAway(NGHTTP2_ENHANCE_YOUR_CALM);
      fatal_ = true;
      return Flush();
    }
    Flush();
    if (closed_) return;
    const auto pause = pace_.NextPause();
    if (pause == pause.zero()) return Read();
    read_timer_.expires_after(pause);
    read_timer_.async_wait([self = shared_from_this()](error_code) {
      if (!self->closed_) self->Read();
    });
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
      if (fatal_ || over || ((draining_ || leaves_) && streams_.empty())) Close();
      return;
    }
    writing_ = true;
    write_started_ = Clock::now();
    asio::async_write(*socket_, asio::buffer(write_buffer_),
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
        self->CheckStream(id, stream, now);
      }
      self->CheckAge(now);
      self->Flush();
      if (!self->closed_) self->CheckTimeouts();
    });
  }

  // Twice, so that calls that are under way when the client learns of it are served, too.
  // Source: RFC 9113, section 6.8.
  void CheckAge(Clock::time_point now) {
    if (draining_ || now < end_of_age_ || leaves_) return;
    if (!std::exchange(leaving_, true)) {
      nghttp2_submit_shutdown_notice(session_);
    } else {
      leaves_ = true;
      SubmitGoAway(NGHTTP2_NO_ERROR);
    }
  }

  void SubmitGoAway(uint32_t error) {
    nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(session_), error, nullptr, 0);
  }

  void CheckStream(int32_t id, Stream& stream, Clock::time_point now) {
    if (!stream.answers.empty() && now - stream.taken > kStallTimeout) {
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    }
    if (stream.handler == nullptr || stream.end) return;
    if (stream.deadline && now >= *stream.deadline) {
      return FinishStream(id, stream, DeadlineExceeded("the deadline of the stream is over"));
    }
    (void)CatchExceptions([&] {
      stream.handler->OnTick();
      return Status::Ok();
    });
  }

  void Close() {
    if (closed_) return;
    closed_ = true;
    for (auto& [id, stream] : streams_) Forget(stream);
    streams_.clear();
    error_code ignored;
    timer_.cancel(ignored);
    read_timer_.cancel(ignored);
    socket_->Close();
  }

  const std::unique_ptr<Connection> socket_;
  using Timer =
      asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, Connection::executor_type>;
  Timer timer_, read_timer_;
  ResetPace pace_;
  std::shared_ptr<GrpcServer::Shared> shared_;
  const std::string client_;       // its address
  const std::string certificate_;  // its common name
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, Stream> streams_;
  std::vector<uint8_t> read_buffer_, write_buffer_;
  Clock::time_point last_activity_, write_started_;
  bool writing_ = false, closed_ = false, fatal_ = false, draining_ = false;
  const Clock::time_point end_of_age_;
  bool leaving_ = false, leaves_ = false;  // for its age: it was told so, once and twice
};

}  // namespace

GrpcServer::GrpcServer(const ServerOptions::Limits& limits, const TrustedProxies& proxies,
                       Tracer& tracer, MessageBudget budget, ServerMetrics& metrics,
                       GrpcHandlers handlers)
    : shared_(std::make_shared<Shared>()) {
  shared_->limits = limits;
  shared_->proxies = &proxies;
  shared_->tracer = &tracer;
  shared_->budget = std::move(budget);
  shared_->metrics = &metrics;
  shared_->handlers = std::move(handlers);
}

GrpcServer::~GrpcServer() = default;

void GrpcServer::Serve(std::unique_ptr<Connection> socket) {
  auto session = std::make_shared<Session>(std::move(socket), shared_);
  {
    std::lock_guard lock(shared_->mutex);
    if (static_cast<int64_t>(shared_->sessions.size()) >= shared_->limits.connections) return;
    if (shared_->clients.HasMost(session->client(), shared_->limits, *shared_->proxies)) return;
    shared_->sessions.insert(session.get());
    shared_->clients.Enter(session->client());
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
