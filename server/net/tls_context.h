// TlsContext: the certificate that listeners show, and which clients' certificates they take.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/base/status.h"
#include "server/config/server_options.h"

namespace onnxd {

// What is spoken at a port.
enum class Speaks { kHttp1, kHttp2, kEither };

// TLS 1.2 and 1.3, no renegotiation. Any thread.
class TlsContext {
 public:
  using Context = std::shared_ptr<boost::asio::ssl::context>;

  // Reads tls.certificate and tls.key (PEM, the chain in order), and tls.client_ca.
  // kInvalidArgument names the file and what is wrong; a key of another certificate is.
  static Result<std::shared_ptr<TlsContext>> Load(const ServerOptions::Tls& files);

  // What new connections use.
  Context context() const;
  // Of a connection that uses it: what ALPN offers.
  static void SetProtocols(SSL* connection, Speaks speaks);
  // When the certificate expires.
  std::time_t expiry() const;

  // Reads the files again if one of them has changed since the last look. True when they are used
  // from now on; on failure all stays as it was, until they change again.
  Result<bool> Refresh();

 private:
  struct Loaded {
    Context context;
    std::time_t expiry = 0;
  };
  explicit TlsContext(const ServerOptions::Tls& files) : files_(files) {}
  static Result<Loaded> Read(const ServerOptions::Tls& files);
  // Changes when one of the files does.
  std::string Fingerprint() const;

  const ServerOptions::Tls files_;
  mutable std::mutex mutex_;
  Loaded loaded_;            // guarded by mutex_
  std::string fingerprint_;  // of what was read last; guarded by mutex_
};

}  // namespace onnxd
