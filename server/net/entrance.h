// Entrance: what comes between an accepted connection and the session that serves it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "server/metrics/server_metrics.h"
#include "server/net/connection.h"

namespace onnxd {

// Does the TLS handshake, within 5 s and at most 256 at once, and where a port is for both
// protocols, tells HTTP/2 from HTTP/1 by ALPN or by the first bytes, which 1,024 at once may owe
// for 10 s. Any thread.
class Entrance {
 public:
  using Serve = std::function<void(std::unique_ptr<Connection>)>;

  // Where `serve_http1` or `serve_http2` is null, that is not spoken here. `tls` may be null.
  Entrance(Serve serve_http1, Serve serve_http2, std::shared_ptr<const TlsContext> tls,
           ServerMetrics& metrics);

  void Take(Connection::Socket socket, IoThreads::Seat seat) const;

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace onnxd
