// Listener: the one way in, which survives failed accepts.
#pragma once

#include <atomic>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>  // Boost 1.74 in C++20 needs it first

#include "runtime/base/status.h"
#include "server/metrics/server_metrics.h"
#include "server/net/connection.h"
#include "server/net/io_threads.h"

namespace onnxd {

// Accepts connections of TCP or of a unix socket and hands each to the I/O thread with the fewest.
// A failed accept (descriptors or memory exhausted, a connection aborted) is counted, and accepting
// goes on after 20 ms.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  using OnConnection = std::function<void(Connection::Socket, IoThreads::Seat)>;

  // Binds; port 0 takes a free one. kFailedPrecondition names the address, and for a busy port its
  // holder where the system tells.
  static Result<std::shared_ptr<Listener>> Bind(IoThreads& threads, const std::string& address,
                                                int port, ServerMetrics& metrics,
                                                OnConnection on_connection);
  // Takes the place of a socket there that nobody listens at; only its owner and group may connect
  // (mode 0660). kFailedPrecondition where somebody listens, or the file is something else.
  static Result<std::shared_ptr<Listener>> BindUnix(IoThreads& threads, const std::string& path,
                                                    ServerMetrics& metrics,
                                                    OnConnection on_connection);
  ~Listener();
  void Start();
  // Accepts on, should the work that does have been lost. Any thread.
  void Revive();
  // Stops accepting; connections live on.
  void Close();
  int port() const { return port_; }
  const std::string& unix_socket() const { return unix_socket_; }

 private:
  Listener(IoThreads& threads, ServerMetrics& metrics, OnConnection on_connection);
  void Accept();

  // Lives as long as an accept is under way.
  class Accepting {
   public:
    explicit Accepting(Listener& listener) : listener_(listener) { listener_.accepting_ = true; }
    ~Accepting() { listener_.accepting_ = false; }
    Accepting(const Accepting&) = delete;
    Accepting& operator=(const Accepting&) = delete;

   private:
    Listener& listener_;
  };
  void AcceptLater(const std::string& reason, std::shared_ptr<Accepting> accepting);

  IoThreads& threads_;
  boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol> acceptor_;
  boost::asio::steady_timer backoff_;
  ServerMetrics& metrics_;
  OnConnection on_connection_;
  std::atomic<bool> accepting_{false};
  int port_ = 0;
  std::string unix_socket_;  // which goes with the listener
};

// "pid 4711 (nginx)" for the process that listens on a local port, empty when it cannot be told.
std::string PortHolder(int port);

}  // namespace onnxd
