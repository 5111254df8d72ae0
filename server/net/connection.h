// Connection: a client's bytes, over TCP or a unix socket, plain or in TLS.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <optional>
#include <string>
#include <utility>

#include "server/net/io_threads.h"
#include "server/net/tls_context.h"

namespace onnxd {

// An AsyncReadStream and AsyncWriteStream of Boost.Asio. All methods on its I/O thread, but
// get_executor and native_handle.
class Connection {
 public:
  using executor_type = boost::asio::io_context::executor_type;
  using Socket =
      boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol, executor_type>;

  // Plain with a null `tls`; else Handshake comes first.
  Connection(Socket socket, IoThreads::Seat seat, const TlsContext::Context& tls, Speaks speaks);

  executor_type get_executor() { return socket_.get_executor(); }
  // Its client's address without a port; "unix" for a unix socket; empty when it is gone already.
  const std::string& client() const { return client_; }
  bool is_tls() const { return tls_.has_value(); }
  // Of TLS: what ALPN chose; empty: nothing.
  std::string protocol() const;
  // Of TLS: the common name in the client's certificate, which was verified; empty: there is none.
  std::string certificate_name() const;

  template <typename Handler>
  void Handshake(Handler handler) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::move(handler));
  }

  // These bytes are read before all others.
  void PutBack(std::string bytes) { put_back_ = std::move(bytes); }

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler handler) {
    if (!put_back_.empty()) {
      const size_t taken = boost::asio::buffer_copy(buffers, boost::asio::buffer(put_back_));
      put_back_.erase(0, taken);
      boost::asio::post(get_executor(), [handler = std::move(handler), taken]() mutable {
        handler(boost::system::error_code(), taken);
      });
    } else if (tls_) {
      tls_->async_read_some(buffers, std::move(handler));
    } else {
      socket_.async_read_some(buffers, std::move(handler));
    }
  }

  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler handler) {
    if (tls_) {
      tls_->async_write_some(buffers, std::move(handler));
    } else {
      socket_.async_write_some(buffers, std::move(handler));
    }
  }

  // Calls back once there is something to read from the system, or the client has closed.
  template <typename Handler>
  void async_wait_read(Handler handler) {
    socket_.async_wait(Socket::wait_read, std::move(handler));
  }

  int native_handle() { return socket_.native_handle(); }
  // Ends what is under way with operation_aborted.
  void Cancel();
  void ShutdownSend();
  void Close();

 private:
  const IoThreads::Seat seat_;
  Socket socket_;
  const std::string client_;
  TlsContext::Context context_;  // outlives tls_
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
  std::string put_back_;
};

}  // namespace onnxd
