// One HTTP/2 connection of a client: nghttp2's session over a socket. Frames, flow control,
// timeouts, age, and the pace of clients who only reset their streams; what streams carry is the
// subclass's. Source: RFC 9113
#pragma once

#include <nghttp2/nghttp2.h>

#include <boost/asio/basic_waitable_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/config/server_options.h"
#include "server/grpc/reset_pace.h"
#include "server/net/connection.h"

namespace onnxd {

// All but Start, Announce, SendGoAway and client runs on the connection's I/O thread.
class Http2Session : public std::enable_shared_from_this<Http2Session> {
 public:
  // `limits` must outlive it.
  Http2Session(std::unique_ptr<Connection> socket, const ServerOptions::Limits& limits);
  virtual ~Http2Session();
  Http2Session(const Http2Session&) = delete;
  Http2Session& operator=(const Http2Session&) = delete;

  void Start();
  // The client is asked to go elsewhere. Streams it opens meanwhile are served; half a second to
  // two seconds later it is as if SendGoAway were called.
  void Announce();
  // Streams that are open go on. After the last of them the connection is half-closed, and closed
  // once the client has closed it, too, or after two seconds.
  void SendGoAway();
  const std::string& client() const { return client_; }

 protected:
  using Clock = std::chrono::steady_clock;
  enum class Part { kHeaders, kData };
  static constexpr uint32_t kMaxHeaderBytes = 16 * 1024;  // of a stream, as SETTINGS say

  // What the client sent, and what was sent to it. These are called within nghttp2: streams may be
  // answered and reset, and Flush is called afterwards.
  virtual void OnOpen(int32_t stream) = 0;
  // False: the stream is reset.
  virtual bool OnHeader(int32_t stream, std::string_view name, std::string_view value) = 0;
  virtual void OnData(int32_t stream, std::string_view data) = 0;
  // A whole frame of these; `ends`: the client has no more to say on this stream.
  virtual void OnFrame(int32_t stream, Part part, bool ends) = 0;
  // Headers that end the stream are on their way.
  virtual void OnEndSent(int32_t stream) = 0;
  virtual void OnStreamClose(int32_t stream, bool was_reset) = 0;

  // The others are not; Flush is called after them, too.
  virtual bool HasStreams() const = 0;
  virtual void OnGoAway() = 0;
  virtual void OnTick(Clock::time_point now) = 0;  // about once a second
  virtual void OnClose() = 0;                      // the socket is gone

  // Writes what the session has to say; one write at a time.
  void Flush();
  void Reset(int32_t stream, uint32_t error);

  nghttp2_session* session() const { return session_; }
  Connection& socket() { return *socket_; }
  const ServerOptions::Limits& limits() const { return limits_; }
  ResetPace& pace() { return pace_; }
  bool closed() const { return closed_; }
  // SendGoAway was called, or has come of Announce.
  bool draining() const { return draining_; }

 private:
  using Timer = boost::asio::basic_waitable_timer<Clock, boost::asio::wait_traits<Clock>,
                                                  Connection::executor_type>;

  bool CreateSession();
  void Read();
  void OnBytes(size_t bytes);
  void CheckTimeouts();
  void CheckAge(Clock::time_point now);
  void SubmitNotice();
  void SubmitGoAway(uint32_t error);
  void Drain();
  void Linger();
  void Close();

  const std::unique_ptr<Connection> socket_;
  const ServerOptions::Limits& limits_;
  Timer timer_, read_timer_;
  const std::string client_;  // its address
  ResetPace pace_;
  nghttp2_session* session_ = nullptr;
  std::vector<uint8_t> read_buffer_, write_buffer_;
  Clock::time_point last_activity_, write_started_, noticed_, half_closed_;
  bool writing_ = false, closed_ = false, fatal_ = false, draining_ = false;
  const Clock::time_point end_of_age_;
  bool announced_ = false;                 // for the server's end
  bool leaving_ = false, leaves_ = false;  // for its age or the server's end: told once and twice
  bool lingers_ = false;
  size_t discarded_ = 0;  // bytes
};

}  // namespace onnxd
