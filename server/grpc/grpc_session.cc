#include "server/grpc/grpc_session.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <deque>
#include <list>
#include <utility>

#include "runtime/base/exceptions.h"
#include "runtime/base/machine.h"
#include "runtime/base/str_cat.h"
#include "server/grpc/grpc_framing.h"
#include "server/inference/request_id.h"
#include "server/net/one_reply.h"

namespace onnxd {
namespace {

namespace asio = boost::asio;
using std::chrono::seconds;

constexpr size_t kAskFirst = 64 * 1024;  // bytes of a message
constexpr size_t kMaxHeaders = 100;
constexpr auto kFirstMessageTimeout = seconds(30);
constexpr auto kStallTimeout = seconds(30);  // of a client that takes none of an answer
constexpr size_t kMostUnanswered = 64;       // messages of one stream
constexpr size_t kMostUnsentBytes = 16 << 20;
constexpr size_t kAnswerBytes = 256;  // of memory, about, beside those of the message
// A stream that ends with so many unsent leaves them in pieces, which nobody else may need.
constexpr size_t kMuchUnsent = 1 << 20;

nghttp2_nv Header(std::string_view name, std::string_view value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NONE};
}

// One whose value no other answer has, which in HPACK's table would only push out what answers
// share.
nghttp2_nv UniqueHeader(std::string_view name, std::string_view value) {
  nghttp2_nv header = Header(name, value);
  header.flags = NGHTTP2_NV_FLAG_NO_INDEX;
  return header;
}

}  // namespace

// A message on its way out, after its prefix.
struct GrpcSession::Outgoing {
  std::array<char, kGrpcPrefixBytes> prefix;
  std::string message;

  size_t size() const { return prefix.size() + message.size(); }
  // Copies what begins at `from`, at most so many bytes; returns how many.
  size_t Copy(size_t from, uint8_t* out, size_t most) const {
    size_t count = 0;
    if (from < prefix.size()) {
      count = std::min(most, prefix.size() - from);
      std::copy_n(prefix.data() + from, count, out);
    }
    const size_t begin = from + count - prefix.size();
    if (count == most) return count;
    const size_t more = std::min(most - count, message.size() - begin);
    std::copy_n(message.data() + begin, more, out + count);
    return count + more;
  }
};

// One call.
struct GrpcSession::Stream {
  std::string path, content_type, encoding, authorization, api_key, request_id, forwarded_for,
      route_key, traceparent, tracestate, load_report;
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
  std::list<Outgoing> answers;
  size_t answered = 0;               // bytes of the first
  size_t unsent = 0;                 // bytes of all, in memory
  Clock::time_point taken = opened;  // the client took some, or there was nothing to take
  // Of streaming calls: what messages mean, and how many wait for their answer.
  std::unique_ptr<GrpcStreamHandler> handler;
  size_t unread = 0;          // bytes the client may send anew once fewer wait
  bool ended = false;         // by the client
  bool answering = false;     // response headers are under way
  std::optional<Status> end;  // of the answers
  std::list<int64_t> sizes;   // what is admitted for each of the unanswered
};

GrpcSession::GrpcSession(std::unique_ptr<Connection> socket,
                         std::shared_ptr<GrpcServer::Shared> shared)
    : Http2Session(std::move(socket), shared->limits),
      shared_(std::move(shared)),
      certificate_(this->socket().certificate_name()) {
  shared_->metrics->ConnectionOpened(Protocol::kGrpc);
}

GrpcSession::~GrpcSession() {
  {
    std::lock_guard lock(shared_->mutex);
    if (shared_->sessions.erase(this) > 0) shared_->clients.Leave(client());
  }
  for (auto& [id, stream] : streams_) Forget(stream);
  shared_->metrics->ConnectionClosed(Protocol::kGrpc);
}

GrpcSession::Stream* GrpcSession::Find(int32_t id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : &found->second;
}

std::shared_ptr<GrpcSession> GrpcSession::Self() {
  return std::static_pointer_cast<GrpcSession>(shared_from_this());
}

void GrpcSession::OnOpen(int32_t id) { streams_.try_emplace(id); }

bool GrpcSession::OnHeader(int32_t id, std::string_view name, std::string_view value) {
  Stream* stream = Find(id);
  if (stream == nullptr) return true;
  stream->header_bytes += name.size() + value.size() + 32;
  if (++stream->headers > kMaxHeaders || stream->header_bytes > kMaxHeaderBytes) return false;
  if (name == ":path") {
    stream->path = value;
  } else if (name == ":method") {
    stream->post = value == "POST";
  } else if (name == "content-type") {
    stream->content_type = value;
  } else if (name == "grpc-encoding") {
    stream->encoding = value;
  } else if (name == "authorization") {
    if (!stream->authorization.empty()) stream->refusal = Unauthenticated("a key is given twice");
    stream->authorization = value;
  } else if (name == "x-api-key") {
    if (!stream->api_key.empty()) stream->refusal = Unauthenticated("a key is given twice");
    stream->api_key = value;
  } else if (name == "x-forwarded-for") {
    stream->forwarded_for += StrCat(stream->forwarded_for.empty() ? "" : ",", value);
  } else if (name == "x-request-id") {
    stream->request_id = value;
  } else if (name == "x-route-key") {
    stream->route_key = value;
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
  return true;
}

void GrpcSession::OnData(int32_t id, std::string_view data) {
  Stream* stream = Find(id);
  if (stream != nullptr && stream->handler != nullptr) return OnStreamData(id, *stream, data);
  nghttp2_session_consume(session(), id, data.size());
  if (stream == nullptr || !stream->refusal.ok()) return;
  stream->refusal = CheckMore(*stream, data.size());
  if (stream->refusal.ok()) {
    stream->body += data;
  } else {
    Refuse(id, *stream);
  }
}

// Whether a unary call's message may have so many bytes more, which then count as admitted.
Status GrpcSession::CheckMore(Stream& stream, size_t bytes) {
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

void GrpcSession::OnFrame(int32_t id, Part part, bool ends) {
  Stream* stream = Find(id);
  if (stream == nullptr) return;
  stream->ended = stream->ended || ends;
  if (stream->dispatched) {
    if (ends && stream->handler != nullptr) OnStreamEnd(id, *stream);
    return;
  }
  if (part == Part::kHeaders) Identify(*stream);
  if (part == Part::kHeaders && stream->refusal.ok()) {
    if (!stream->post || stream->content_type.rfind("application/grpc", 0) != 0) {
      return RefuseContentType(id, *stream);
    }
    if (shared_->handlers.is_streaming(stream->path)) return OpenStream(id, *stream);
  }
  if (ends) Dispatch(id, *stream);
}

// Its head is there.
void GrpcSession::Identify(Stream& stream) {
  stream.request_id = RequestId(stream.request_id);
  stream.trace = shared_->tracer->Begin(stream.traceparent, stream.tracestate);
  stream.returned_trace = ReturnedTraceParent(stream.trace);
}

// Where a call was answered before its end, the client is told to stop sending.
void GrpcSession::OnEndSent(int32_t id) {
  const Stream* stream = Find(id);
  if (stream != nullptr && !stream->ended) Reset(id, NGHTTP2_NO_ERROR);
}

void GrpcSession::OnStreamClose(int32_t id, bool was_reset) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  Stream& stream = found->second;
  if (was_reset) {
    pace().CallReset(stream.opened,
                     stream.deadline ? *stream.deadline - stream.opened : Clock::duration::zero(),
                     Clock::now());
  } else {
    pace().CallAnswered();
  }
  Forget(stream);
  const bool leaves_much = stream.unsent > kMuchUnsent;
  streams_.erase(found);
  if (leaves_much) ReturnFreedMemory();
}

bool GrpcSession::HasStreams() const { return !streams_.empty(); }

void GrpcSession::OnGoAway() {
  for (auto& [id, stream] : streams_) CheckStream(id, stream, Clock::now());
  // After what the handlers had to say.
  asio::post(socket().get_executor(), [self = Self()] {
    for (auto& [id, stream] : self->streams_) self->EndIdleStream(id, stream);
    if (!self->closed()) self->Flush();
  });
}

void GrpcSession::OnTick(Clock::time_point now) {
  for (auto& [id, stream] : streams_) {
    if (!stream.dispatched &&
        now - stream.opened > kFirstMessageTimeout + seconds(stream.admitted / (16 * 1024))) {
      Reset(id, NGHTTP2_CANCEL);
    }
    CheckStream(id, stream, now);
  }
}

void GrpcSession::OnClose() {
  for (auto& [id, stream] : streams_) Forget(stream);
  streams_.clear();
}

bool GrpcSession::Admit(Stream& stream, int64_t bytes) {
  if (!shared_->budget.admit(bytes)) return false;
  stream.admitted += bytes;
  return true;
}

// All but its message.
GrpcCall GrpcSession::CallOf(const Stream& stream) const {
  GrpcCall call;
  call.path = stream.path;
  call.origin.arrived = stream.opened;
  call.origin.received = Clock::now();
  call.deadline = stream.deadline;
  call.origin.cancelled = stream.cancelled;
  call.origin.client = shared_->proxies->ClientOf(client(), stream.forwarded_for);
  call.certificate = certificate_;
  call.authorization = stream.authorization;
  call.api_key = stream.api_key;
  call.origin.id = stream.request_id;
  call.origin.route_key = stream.route_key;
  call.origin.trace = stream.trace;
  call.stream_error_as_status = stream.error_as_status;
  return call;
}

// Gives back what a stream holds of shared counters.
void GrpcSession::Forget(Stream& stream) {
  if (stream.admitted > 0) shared_->budget.release(stream.admitted);
  stream.admitted = 0;
  if (stream.dispatched) shared_->busy.fetch_sub(1, std::memory_order_release);
  stream.dispatched = false;
  stream.cancelled->store(true, std::memory_order_relaxed);
}

void GrpcSession::MarkDispatched(Stream& stream) {
  stream.dispatched = true;
  shared_->busy.fetch_add(1, std::memory_order_relaxed);
}

// Answers before the request has ended.
void GrpcSession::Refuse(int32_t id, Stream& stream) {
  MarkDispatched(stream);
  std::string().swap(stream.body);
  SubmitTrailersOnly(id, stream.refusal);
}

void GrpcSession::RefuseContentType(int32_t id, Stream& stream) {
  MarkDispatched(stream);
  const std::string status = stream.post ? "415" : "405";
  const nghttp2_nv header = Header(":status", status);
  nghttp2_submit_response(session(), id, &header, 1, nullptr);
}

// Where an answer goes, for OneReply.
struct GrpcSession::Way {
  using Answer = Result<std::string>;
  std::shared_ptr<GrpcSession> session;
  int32_t id;
  std::shared_ptr<const std::atomic<bool>> cancelled;

  void Post(Result<std::string> answer) {
    asio::post(session->socket().get_executor(), [session = session, id = id, cancelled = cancelled,
                                                  answer = std::move(answer)]() mutable {
      session->Answer(id, *cancelled, std::move(answer));
    });
  }
  Result<std::string> Lost() { return Unavailable("no memory"); }
  void Break() { shutdown(session->socket().native_handle(), SHUT_RDWR); }
};

void GrpcSession::Dispatch(int32_t id, Stream& stream) {
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
  const auto reply = std::make_shared<OneReply<Way>>(Way{Self(), id, stream.cancelled});
  const Status handled = CatchExceptions([&] {
    shared_->handlers.unary(
        std::move(call), [reply](Result<std::string> answer) { reply->Send(std::move(answer)); });
    return Status::Ok();
  });
  if (!handled.ok()) reply->Send(Unavailable(std::string(handled.message())));
}

void GrpcSession::Answer(int32_t id, const std::atomic<bool>& cancelled,
                         Result<std::string> answer) {
  Stream* stream = Find(id);
  if (closed() || stream == nullptr || cancelled.load(std::memory_order_relaxed)) return;
  if (!answer.ok()) {
    SubmitTrailersOnly(id, answer.status());
  } else {
    stream->end = Status::Ok();
    Queue(id, *stream, *std::move(answer));
  }
  Flush();
}

void GrpcSession::Queue(int32_t id, Stream& stream, std::string message) {
  if (stream.answers.empty()) stream.taken = Clock::now();
  stream.answers.push_back({GrpcPrefix(message.size()), std::move(message)});
  stream.unsent += stream.answers.back().size() + kAnswerBytes;
  if (std::exchange(stream.answering, true)) {
    nghttp2_session_resume_data(session(), id);
    return;
  }
  const std::array<nghttp2_nv, 5> headers = {Header(":status", "200"),
                                             Header("content-type", "application/grpc"),
                                             Header("grpc-accept-encoding", "identity,gzip"),
                                             UniqueHeader("x-request-id", stream.request_id),
                                             UniqueHeader("traceparent", stream.returned_trace)};
  nghttp2_data_provider provider{};
  provider.source.ptr = this;
  provider.read_callback = ReadAnswer;
  nghttp2_submit_response(session(), id, headers.data(),
                          headers.size() - (stream.returned_trace.empty() ? 1 : 0), &provider);
}

ssize_t GrpcSession::ReadAnswer(nghttp2_session*, int32_t id, uint8_t* out, size_t size,
                                uint32_t* flags, nghttp2_data_source* source, void*) {
  GrpcSession& self = *static_cast<GrpcSession*>(source->ptr);
  Stream* stream = self.Find(id);
  if (stream == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  if (stream->answers.empty() && !stream->end) return NGHTTP2_ERR_DEFERRED;
  size_t count = 0;
  if (!stream->answers.empty()) {
    const Outgoing& first = stream->answers.front();
    count = first.Copy(stream->answered, out, size);
    stream->answered += count;
    stream->unsent -= count;
    stream->taken = Clock::now();
    if (stream->answered == first.size()) {
      stream->answers.pop_front();
      stream->unsent -= kAnswerBytes;
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

void GrpcSession::SubmitTrailers(int32_t id, const Stream& stream) {
  const Status& status = *stream.end;
  const std::string code = StrCat(static_cast<int>(status.code()));
  const std::string message = EncodeGrpcMessage(status.message());
  const auto report =
      status.ok() ? shared_->handlers.load_report(stream.load_report) : std::nullopt;
  std::array<nghttp2_nv, 2> trailers = {Header("grpc-status", code)};
  size_t count = 1;
  if (!status.ok()) trailers[count++] = Header("grpc-message", message);
  if (report) trailers[count++] = UniqueHeader(report->name, report->value);
  nghttp2_submit_trailer(session(), id, trailers.data(), count);
}

void GrpcSession::SubmitTrailersOnly(int32_t id, const Status& status) {
  const std::string code = StrCat(static_cast<int>(status.code()));
  const std::string message = EncodeGrpcMessage(status.message());
  const Stream* stream = Find(id);
  const std::string_view request_id = stream == nullptr ? "" : std::string_view(stream->request_id);
  const std::string_view trace = stream == nullptr ? "" : std::string_view(stream->returned_trace);
  const std::array<nghttp2_nv, 6> headers = {Header(":status", "200"),
                                             Header("content-type", "application/grpc"),
                                             Header("grpc-status", code),
                                             Header("grpc-message", message),
                                             UniqueHeader("x-request-id", request_id),
                                             UniqueHeader("traceparent", trace)};
  nghttp2_submit_response(session(), id, headers.data(), headers.size() - (trace.empty() ? 1 : 0),
                          nullptr);
}

// A stream's way back, from any thread. What is sent is written in that order, which the order of
// posts from different threads alone would not give.
class GrpcSession::Writer : public GrpcWriter, public std::enable_shared_from_this<Writer> {
 public:
  Writer(std::weak_ptr<GrpcSession> session, int32_t id,
         std::shared_ptr<std::atomic<bool>> cancelled)
      : session_(std::move(session)), id_(id), cancelled_(std::move(cancelled)) {}
  void Send(std::string message) override { Post({std::move(message), false, Status()}); }
  void SendPart(std::string message) override { Post({std::move(message), true, Status()}); }
  void Finish(Status status) override { Post({std::nullopt, false, std::move(status)}); }

 private:
  struct Next {
    std::optional<std::string> message;
    bool is_part = false;
    Status end;  // without a message
  };

  void Post(Next next) {
    const auto session = session_.lock();
    if (session == nullptr) return;
    const Status posted = CatchExceptions([&] {
      {
        std::lock_guard lock(mutex_);
        outgoing_.push_back(std::move(next));
      }
      asio::post(session->socket().get_executor(),
                 [session, self = shared_from_this()] { self->Write(*session); });
      return Status::Ok();
    });
    if (!posted.ok()) shutdown(session->socket().native_handle(), SHUT_RDWR);
  }

  void Write(GrpcSession& session) {
    std::deque<Next> outgoing;
    {
      std::lock_guard lock(mutex_);
      outgoing.swap(outgoing_);
    }
    for (Next& next : outgoing) {
      Stream* stream = session.Find(id_);
      if (session.closed() || stream == nullptr || *cancelled_) return;
      if (next.is_part) {
        if (!stream->end) session.Queue(id_, *stream, *std::move(next.message));
      } else if (next.message) {
        session.SendOn(id_, *stream, *std::move(next.message));
      } else {
        session.FinishStream(id_, *stream, next.end);
      }
    }
    session.Flush();
  }

  const std::weak_ptr<GrpcSession> session_;
  const int32_t id_;
  const std::shared_ptr<std::atomic<bool>> cancelled_;
  std::mutex mutex_;
  std::deque<Next> outgoing_;  // guarded by mutex_
};

void GrpcSession::OpenStream(int32_t id, Stream& stream) {
  const GrpcCall call = CallOf(stream);
  std::unique_ptr<GrpcStreamHandler> handler;
  const Status opened = CatchExceptions([&]() -> Status {
    ONNXD_ASSIGN_OR_RETURN(handler,
                           shared_->handlers.open_stream(
                               call, std::make_shared<Writer>(Self(), id, stream.cancelled)));
    return Status::Ok();
  });
  MarkDispatched(stream);
  if (!opened.ok()) {
    stream.refusal = opened;
    return SubmitTrailersOnly(id, opened);
  }
  stream.handler = std::move(handler);
  if (stream.ended) OnStreamEnd(id, stream);
}

void GrpcSession::OnStreamData(int32_t id, Stream& stream, std::string_view data) {
  nghttp2_session_consume_connection(session(), data.size());
  stream.unread += data.size();
  if (stream.end) return;
  if (!Admit(stream, static_cast<int64_t>(data.size()))) {
    FinishStream(id, stream, Unavailable("too many request bytes are in memory"));
    return;
  }
  stream.body += data;
  ReadMessages(id, stream);
  AllowMore(id, stream);
}

void GrpcSession::ReadMessages(int32_t id, Stream& stream) {
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

void GrpcSession::AllowMore(int32_t id, Stream& stream) {
  if (stream.sizes.size() >= kMostUnanswered || stream.unsent > kMostUnsentBytes) return;
  if (stream.unread > 0) {
    nghttp2_session_consume_stream(session(), id, std::exchange(stream.unread, 0));
  }
}

void GrpcSession::OnStreamEnd(int32_t id, Stream& stream) {
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

void GrpcSession::SendOn(int32_t id, Stream& stream, std::string message) {
  if (stream.end) return;
  if (!stream.sizes.empty()) {
    shared_->budget.release(stream.sizes.front());
    stream.admitted -= stream.sizes.front();
    stream.sizes.pop_front();
  }
  Queue(id, stream, std::move(message));
  AllowMore(id, stream);
  if (draining()) EndIdleStream(id, stream);
}

void GrpcSession::FinishStream(int32_t id, Stream& stream, const Status& status) {
  if (stream.end) return;
  stream.end = status;
  if (stream.answering) {
    nghttp2_session_resume_data(session(), id);
  } else {
    SubmitTrailersOnly(id, status);
  }
}

void GrpcSession::EndIdleStream(int32_t id, Stream& stream) {
  if (stream.handler == nullptr || !stream.sizes.empty()) return;
  FinishStream(id, stream, Unavailable("the server is draining"));
}

void GrpcSession::CheckStream(int32_t id, Stream& stream, Clock::time_point now) {
  if (!stream.answers.empty() && now - stream.taken > kStallTimeout) {
    Reset(id, NGHTTP2_CANCEL);
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

}  // namespace onnxd
