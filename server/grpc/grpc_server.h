// gRPC over HTTP/2: framing, limits, deadlines and status. What calls mean is the handler's.
// Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
// Unary and bidirectional streaming calls; messages may come compressed with gzip.
#pragma once

#include <memory>
#include <vector>

#include "server/config/server_options.h"
#include "server/grpc/grpc_message.h"
#include "server/metrics/server_metrics.h"
#include "server/net/connection.h"
#include "server/net/trusted_proxies.h"
#include "server/tracing/tracer.h"

namespace onnxd {

class Http2Session;

struct MessageBudget {
  std::function<bool(int64_t)> admit;
  std::function<void(int64_t)> release;
};

// Serves connections until it is destroyed. Any thread.
class GrpcServer {
 public:
  // The clients of `proxies`, which must outlive it, are those they name; so must `tracer`.
  GrpcServer(const ServerOptions::Limits& limits, const TrustedProxies& proxies, Tracer& tracer,
             MessageBudget budget, ServerMetrics& metrics, GrpcHandlers handlers);
  ~GrpcServer();

  void Serve(std::unique_ptr<Connection> connection);
  // Clients of the connections there are learn that they should go elsewhere; their calls are still
  // served for a second or so.
  void AnnounceDrain();
  // GOAWAY on every connection: calls in flight finish, new ones go elsewhere.
  void BeginDrain();
  // Calls whose answer has not been written.
  int64_t busy() const;
  // Connections that neither side has closed.
  int64_t connections() const;

  struct Shared;

 private:
  std::vector<std::shared_ptr<Http2Session>> Sessions() const;

  std::shared_ptr<Shared> shared_;
};

}  // namespace onnxd
