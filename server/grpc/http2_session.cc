#include "server/grpc/http2_session.h"

#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <iterator>
#include <utility>

#include "runtime/base/machine.h"
#include "server/net/connection_age.h"

namespace onnxd {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::seconds;

constexpr size_t kReadBytes = 64 * 1024;
constexpr size_t kWriteBytes = 256 * 1024;
constexpr uint32_t kMaxStreams = 1024;
constexpr uint32_t kStreamWindow = 1 << 20;
constexpr int32_t kConnectionWindow = 16 << 20;
constexpr int64_t kReturnMemoryEach = 32;
constexpr auto kNotice = std::chrono::milliseconds(500);  // before what it announces
constexpr auto kLinger = seconds(2);
constexpr size_t kMostDiscarded = 1 << 20;

std::atomic<int64_t> given_up{0};  // connections of the process that only reset streams

std::string_view View(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

bool EndsStream(const nghttp2_frame& frame) {
  return (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
}

}  // namespace

Http2Session::Http2Session(std::unique_ptr<Connection> socket, const ServerOptions::Limits& limits)
    : socket_(std::move(socket)),
      limits_(limits),
      timer_(socket_->get_executor()),
      read_timer_(socket_->get_executor()),
      client_(socket_->client()),
      end_of_age_(EndOfAge(limits, Clock::now())) {}

Http2Session::~Http2Session() {
  nghttp2_session_del(session_);
  // Their clients come again; what they leave is in pieces.
  if (pace_.IsHopeless() && given_up.fetch_add(1) % kReturnMemoryEach == 0) ReturnFreedMemory();
}

void Http2Session::Start() {
  asio::dispatch(socket_->get_executor(), [self = shared_from_this()] {
    if (!self->CreateSession()) return self->Close();
    self->last_activity_ = Clock::now();
    self->CheckTimeouts();
    self->Read();
    self->Flush();
  });
}

void Http2Session::Announce() {
  asio::post(socket_->get_executor(), [self = shared_from_this()] {
    if (self->session_ == nullptr || self->closed_) return;
    self->announced_ = true;
    if (!self->leaving_) self->SubmitNotice();
    self->OnTick(Clock::now());  // who watches the server's health learns of it at once
    self->Flush();
  });
}

void Http2Session::SendGoAway() {
  asio::post(socket_->get_executor(), [self = shared_from_this()] {
    if (self->session_ == nullptr || self->closed_ || self->draining_) return;
    self->Drain();
    self->Flush();
  });
}

bool Http2Session::CreateSession() {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_option* option = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) != 0) return false;
  static constexpr auto kSelf = [](void* self) -> Http2Session& {
    return *static_cast<Http2Session*>(self);
  };
  nghttp2_session_callbacks_set_on_begin_headers_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
        if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
          kSelf(self).OnOpen(frame->hd.stream_id);
        }
        return 0;
      });
  nghttp2_session_callbacks_set_on_header_callback(
      callbacks,
      [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
         const uint8_t* value, size_t value_size, uint8_t, void* self) {
        const bool taken = kSelf(self).OnHeader(frame->hd.stream_id, View(name, name_size),
                                                View(value, value_size));
        return taken ? 0 : static_cast<int>(NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE);
      });
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
      callbacks,
      [](nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t size, void* self) {
        kSelf(self).OnData(id, View(data, size));
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_recv_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
        const bool headers = frame->hd.type == NGHTTP2_HEADERS;
        if (!headers && frame->hd.type != NGHTTP2_DATA) return 0;
        kSelf(self).OnFrame(frame->hd.stream_id, headers ? Part::kHeaders : Part::kData,
                            EndsStream(*frame));
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_send_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
        if (frame->hd.type == NGHTTP2_HEADERS && EndsStream(*frame)) {
          kSelf(self).OnEndSent(frame->hd.stream_id);
        }
        return 0;
      });
  nghttp2_session_callbacks_set_on_stream_close_callback(
      callbacks, [](nghttp2_session*, int32_t id, uint32_t error, void* self) {
        kSelf(self).OnStreamClose(id, error != NGHTTP2_NO_ERROR);
        return 0;
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
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMaxHeaderBytes}};
  return nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings)) == 0 &&
         nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow) ==
             0;
}

void Http2Session::Reset(int32_t stream, uint32_t error) {
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, error);
}

void Http2Session::Read() {
  const size_t most = pace_.ReadBytes(kReadBytes);
  if (read_buffer_.size() < most) read_buffer_.resize(most);
  socket_->async_read_some(asio::buffer(read_buffer_, most),
                           [self = shared_from_this()](error_code error, size_t bytes) {
                             if (error || self->closed_) return self->Close();
                             self->OnBytes(bytes);
                           });
}

void Http2Session::OnBytes(size_t bytes) {
  if (fatal_ || lingers_) {
    discarded_ += bytes;
    return discarded_ > kMostDiscarded ? Close() : Read();
  }
  last_activity_ = Clock::now();
  const ssize_t used = nghttp2_session_mem_recv(session_, read_buffer_.data(), bytes);
  if (used < 0) {
    fatal_ = true;  // the session queued a GOAWAY where it could
  } else if (pace_.IsHopeless()) {
    SubmitGoAway(NGHTTP2_ENHANCE_YOUR_CALM);
    fatal_ = true;
  }
  Flush();
  if (closed_) return;
  const auto pause = pace_.NextPause(last_activity_);
  if (pause == pause.zero()) return Read();
  read_timer_.expires_after(pause);
  read_timer_.async_wait([self = shared_from_this()](error_code) {
    if (!self->closed_) self->Read();
  });
}

void Http2Session::Flush() {
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
    if (fatal_ || over || (leaves_ && !HasStreams())) Linger();
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

// Once a second: stalled writes, idle connections.
void Http2Session::CheckTimeouts() {
  timer_.expires_after(seconds(1));
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (error || self->closed_) return;
    const auto now = Clock::now();
    const ServerOptions::Limits& limits = self->limits_;
    if (self->writing_ && now - self->write_started_ > seconds(limits.write_timeout_s)) {
      return self->Close();
    }
    if (!self->HasStreams() && now - self->last_activity_ > seconds(limits.idle_timeout_s)) {
      return self->Close();
    }
    if (self->lingers_ && now - self->half_closed_ > kLinger) return self->Close();
    self->OnTick(now);
    self->CheckAge(now);
    self->Flush();
    if (!self->closed_) self->CheckTimeouts();
  });
}

// Twice, so that calls that are under way when the client learns of it are served, too.
// Source: RFC 9113, section 6.8.
void Http2Session::CheckAge(Clock::time_point now) {
  if (leaves_ || (now < end_of_age_ && !announced_)) return;
  if (!leaving_) return SubmitNotice();
  if (now - noticed_ < kNotice) return;
  if (announced_) return Drain();
  leaves_ = true;
  SubmitGoAway(NGHTTP2_NO_ERROR);
}

void Http2Session::SubmitNotice() {
  leaving_ = true;
  noticed_ = Clock::now();
  nghttp2_submit_shutdown_notice(session_);
}

void Http2Session::SubmitGoAway(uint32_t error) {
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), error, nullptr, 0);
}

void Http2Session::Drain() {
  leaving_ = leaves_ = draining_ = true;
  SubmitGoAway(NGHTTP2_NO_ERROR);
  OnGoAway();
}

// Half-closes and reads on: closing with unread bytes would reset the connection, and clients who
// are just then writing would not read why it ended, nor which of their calls were taken.
void Http2Session::Linger() {
  if (pace_.IsHopeless()) return Close();
  if (std::exchange(lingers_, true)) return;
  half_closed_ = Clock::now();
  socket_->ShutdownSend();
}

void Http2Session::Close() {
  if (closed_) return;
  closed_ = true;
  OnClose();
  error_code ignored;
  timer_.cancel(ignored);
  read_timer_.cancel(ignored);
  socket_->Close();
}

}  // namespace onnxd
