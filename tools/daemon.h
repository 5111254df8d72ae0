// Daemon: the parts of the running server.
#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/access/access_gate.h"
#include "server/config/server_options.h"
#include "server/grpc/grpc_api.h"
#include "server/grpc/grpc_server.h"
#include "server/http/http_server.h"
#include "server/http/rest_api.h"
#include "server/models/model_manager.h"
#include "server/net/entrance.h"
#include "server/net/listener.h"

namespace onnxd {

// One thread, but for StopLoading.
class Daemon {
 public:
  // `read`: the options as they are in the file now.
  Daemon(const ServerOptions& options, const SessionOptions& session, AccessGate::Keys keys,
         std::function<Result<ServerOptions>()> read);

  // kInvalidArgument, kFailedPrecondition: an address or port cannot be had.
  Status Listen();
  // Before Start.
  void Expect(const std::vector<WantedVersion>& wanted) { manager_.Expect(wanted); }
  // Begins to serve and says where.
  void Start();

  // Returns the failures.
  std::vector<Status> Load(const std::vector<WantedVersion>& wanted);
  void StopLoading() { manager_.StopLoading(); }

  bool Ready() const { return service_.Ready(); }
  ServerMetrics& metrics() { return metrics_; }
  // Whether an I/O thread comes to work within that time.
  bool Responds(std::chrono::milliseconds most);

  // Reads the configuration again, for SIGHUP and for all who asked over REST meanwhile: all of it
  // takes effect, or nothing when it is wrong or needs a restart.
  void Reload();
  // Reads the certificate again where its files have changed. About every 2 s.
  void RefreshTls();

  // Measures the devices that models use. kUnavailable says which of them is lost, and why.
  Status LookAtDevices();

  // Not ready any more, but serving: load balancers need a moment to notice.
  void BeginDrain();
  // No new connections; what is in flight is finished within the drain timeout, or until one of
  // `signals` comes.
  void Drain(const sigset_t& signals);
  std::chrono::seconds drain_delay() const {
    return std::chrono::seconds(options_.limits.drain_delay_s);
  }

 private:
  BodyBudget Budget();
  Result<std::vector<std::string>> TryReload();
  // Connections of one listener, for the sessions of either or both protocols.
  Listener::OnConnection EntranceFor(bool http, bool grpc, bool tls);
  Status ListenAtSockets();

  ServerOptions options_;
  const std::function<Result<ServerOptions>()> read_;
  const std::shared_ptr<MemoryAccount> memory_;
  ServerMetrics metrics_;
  ModelRegistry registry_;
  Scheduler scheduler_;
  ModelManager manager_;
  const std::unique_ptr<SpanExporter> exporter_;  // null: spans are not sent
  Tracer tracer_;
  InferenceService service_;
  AccessGate gate_;
  RestApi api_;
  GrpcApi grpc_api_;
  IoThreads io_;
  const TrustedProxies proxies_;
  HttpServer http_, metrics_http_;
  GrpcServer grpc_;
  std::shared_ptr<TlsContext> tls_;  // null: none
  // The REST and gRPC ports, of which the second may be missing, the metrics port, unix sockets.
  std::shared_ptr<Listener> http_listener_, grpc_listener_, metrics_listener_;
  std::vector<std::shared_ptr<Listener>> listeners_;  // all of them
};

// The signal of `signals` that came within that time, or 0.
int WaitForSignal(const sigset_t& signals, std::chrono::milliseconds most);

}  // namespace onnxd
