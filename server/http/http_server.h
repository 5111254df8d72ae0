// HTTP/1.1 over a connection: framing, limits and deadlines. What requests mean is the handler's.
//
// Per connection, one request at a time, pipelined ones in order:
//
//   idle --first byte--> header --complete--> body --complete--> handling --answer--> writing
//     ^        10 s absolute        16 KB/s        no timer            10 s per stall     |
//     +------------------------------------------------------------------ keep-alive ----+
#pragma once

#include <atomic>
#include <memory>

#include "server/config/server_options.h"
#include "server/http/http_message.h"
#include "server/metrics/server_metrics.h"
#include "server/net/connection.h"
#include "server/net/trusted_proxies.h"

namespace onnxd {

// Bytes of request bodies against the process's budget.
struct BodyBudget {
  std::function<bool(int64_t)> admit;
  std::function<void(int64_t)> release;
};

// Serves connections until it is destroyed. Any thread.
class HttpServer {
 public:
  // `refuse` is asked before large bodies are read. The clients of `proxies` are those they name.
  // Large JSON is handled off the I/O threads, for whose other connections it would take too long.
  // `threads` and `proxies` must outlive it.
  HttpServer(const ServerOptions& options, IoThreads& threads, const TrustedProxies& proxies,
             BodyBudget budget, ServerMetrics& metrics, HttpHandler handler, HttpRefuse refuse);
  ~HttpServer();

  void Serve(std::unique_ptr<Connection> connection);
  // Answers from now on close their connection, so that clients look for another server.
  void AnnounceDrain();
  // That, and idle connections are closed at once.
  void BeginDrain();
  // Requests between their first byte and the end of their answer.
  int64_t busy() const;

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace onnxd
