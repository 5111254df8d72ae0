#include "tools/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <map>

#include "runtime/base/exceptions.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/providers/default_providers.h"
#include "tools/collector.h"
#include "tools/serve_setup.h"

namespace onnxd {
namespace {

// At the end, for clients who have been told of it to close their connections.
constexpr auto kFarewell = std::chrono::seconds(1);

std::shared_ptr<MemoryAccount> AccountOf(const ServerOptions& options) {
  auto account = std::make_shared<MemoryAccount>();
  account->SetLimit(MemoryLimit(options));
  return account;
}

}  // namespace

int WaitForSignal(const sigset_t& signals, std::chrono::milliseconds most) {
  const timespec time{most.count() / 1000, most.count() % 1000 * 1'000'000};
  return std::max(0, sigtimedwait(&signals, nullptr, &time));
}

Daemon::Daemon(const ServerOptions& options, const SessionOptions& session, AccessGate::Keys keys,
               std::function<Result<ServerOptions>()> read)
    : options_(options),
      read_(std::move(read)),
      memory_(AccountOf(options)),
      scheduler_({ExecutorCount(options), options.limits.queue_requests,
                  static_cast<int>(options.server.io_threads) - 1},
                 metrics_),
      manager_(session, options, registry_, scheduler_, metrics_, memory_, InferenceSession::Load,
               ProvidersByModel(options, session)),
      // Which ReadOptions has checked.
      exporter_(ExporterOf(options.tracing, metrics_)),
      tracer_({true, options.tracing.rate, -1}, exporter_.get()),
      service_(registry_, manager_, scheduler_, metrics_, memory_, tracer_, options),
      gate_(options, std::move(keys)),
      api_(service_, gate_, options.server),
      grpc_api_(service_, gate_),
      io_(static_cast<int>(options.server.io_threads)),
      // Which ReadOptions has checked.
      proxies_(TrustedProxies::Parse(options.server.trusted_proxies).value()),
      http_(
          options, io_, proxies_, Budget(), metrics_,
          [this](HttpRequest request, HttpRespond respond) {
            api_.Handle(std::move(request), std::move(respond));
          },
          [this](const HttpRequest& request) { return api_.Refuse(request); }),
      metrics_http_(
          options, io_, proxies_, Budget(), metrics_,
          [this](HttpRequest request, HttpRespond respond) {
            api_.HandleMetricsPort(std::move(request), std::move(respond));
          },
          [](const HttpRequest&) { return ErrorResponse(413, "nothing is taken here"); }),
      grpc_(options.limits, proxies_, tracer_,
            {[this](int64_t bytes) { return service_.AdmitBytes(bytes); },
             [this](int64_t bytes) { service_.ReleaseBytes(bytes); }},
            metrics_,
            {[this](GrpcCall&& call, GrpcRespond respond) {
               grpc_api_.Handle(std::move(call), std::move(respond));
             },
             [this](const GrpcCall& call) { return grpc_api_.Check(call); }, GrpcApi::IsStreaming,
             [this](const GrpcCall& call, std::shared_ptr<GrpcWriter> writer) {
               return grpc_api_.OpenStream(call, std::move(writer));
             },
             [reporter = LoadReporter(service_, options.server)](std::string_view wanted) {
               return reporter.For(wanted, LoadReportFormat::kBinary);
             }}) {
  metrics_.SetMemory(memory_);
  // The thread that waits for signals does the work.
  service_.SetReload([] { kill(getpid(), SIGHUP); });
}

Listener::OnConnection Daemon::EntranceFor(bool http, bool grpc, bool tls) {
  Entrance::Serve to_http, to_grpc;
  if (http) to_http = [this](auto connection) { http_.Serve(std::move(connection)); };
  if (grpc) to_grpc = [this](auto connection) { grpc_.Serve(std::move(connection)); };
  return [entrance = Entrance(std::move(to_http), std::move(to_grpc), tls ? tls_ : nullptr,
                              metrics_)](Connection::Socket socket, IoThreads::Seat seat) {
    entrance.Take(std::move(socket), std::move(seat));
  };
}

Status Daemon::Listen() {
  const ServerOptions::Listen& listen = options_.server;
  if (!options_.tls.certificate.empty()) {
    ONNXD_ASSIGN_OR_RETURN(tls_, TlsContext::Load(options_.tls));
    metrics_.SetTlsExpiry(tls_->expiry());
  }
  const auto bind = [&](int64_t port, Listener::OnConnection on_connection) {
    return Listener::Bind(io_, listen.bind, static_cast<int>(port), metrics_,
                          std::move(on_connection));
  };
  ONNXD_ASSIGN_OR_RETURN(http_listener_,
                         bind(listen.http_port, EntranceFor(true, listen.one_port, true)));
  listeners_ = {http_listener_};
  if (!listen.one_port) {
    ONNXD_ASSIGN_OR_RETURN(grpc_listener_, bind(listen.grpc_port, EntranceFor(false, true, true)));
    listeners_.push_back(grpc_listener_);
  }
  const Entrance metrics([this](auto connection) { metrics_http_.Serve(std::move(connection)); },
                         nullptr, nullptr, metrics_);
  ONNXD_ASSIGN_OR_RETURN(
      metrics_listener_,
      bind(listen.metrics_port, [metrics](Connection::Socket socket, IoThreads::Seat seat) {
        metrics.Take(std::move(socket), std::move(seat));
      }));
  return ListenAtSockets();
}

Status Daemon::ListenAtSockets() {
  const ServerOptions::Listen& listen = options_.server;
  for (const auto& [path, http] :
       {std::pair(listen.http_socket, true), std::pair(listen.grpc_socket, false)}) {
    if (path.empty()) continue;
    ONNXD_ASSIGN_OR_RETURN(
        auto listener, Listener::BindUnix(io_, path, metrics_, EntranceFor(http, !http, false)));
    listeners_.push_back(std::move(listener));
  }
  return Status::Ok();
}

void Daemon::RefreshTls() {
  if (tls_ == nullptr) return;
  const auto read = tls_->Refresh();
  if (read.ok() && !*read) return;
  metrics_.CountTlsReload(read.ok());
  if (!read.ok()) {
    return LogError(StrCat("the certificate stays as it was: ", read.status().ToString()));
  }
  metrics_.SetTlsExpiry(tls_->expiry());
  LogInfo(StrCat("the certificate was read again: ", options_.tls.certificate));
}

void Daemon::Start() {
  for (const auto& listener : listeners_) {
    io_.OnLostWork([listener] { listener->Revive(); });
  }
  io_.OnLostWork([listener = metrics_listener_] { listener->Revive(); });
  io_.Start();
  for (const auto& listener : listeners_) listener->Start();
  metrics_listener_->Start();
  if (!gate_.why_admin_closed().empty()) {
    LogWarning(StrCat("calls that change the server are refused: ", gate_.why_admin_closed()));
  }
  const char* host = options_.server.bind.c_str();
  const char* secured = tls_ == nullptr ? "" : "s";
  const int http_port = http_listener_->port();
  std::printf("onnxd " ONNXD_VERSION
              " listens on http%s://%s:%d, grpc%s://%s:%d and "
              "http://%s:%d/metrics\n",
              secured, host, http_port, secured, host,
              grpc_listener_ == nullptr ? http_port : grpc_listener_->port(), host,
              metrics_listener_->port());
  std::fflush(stdout);
}

std::vector<Status> Daemon::Load(const std::vector<WantedVersion>& wanted) {
  auto failures = manager_.LoadAll(wanted);
  if (!manager_.first_load_done()) return failures;
  manager_.Follow();
  if (service_.Ready()) {
    std::printf("ready: %s\n", StrJoin(service_.ModelNames(), ", ").c_str());
  } else {
    std::printf("not ready: %zu of %zu models failed to load\n", failures.size(), wanted.size());
  }
  std::fflush(stdout);
  return failures;
}

bool Daemon::Responds(std::chrono::milliseconds most) {
  struct Answers {
    std::atomic<int> missing;
    std::promise<void> all;
  };
  const auto answers = std::make_shared<Answers>();
  answers->missing = io_.count();
  auto all = answers->all.get_future();
  io_.PostToAll([answers] {
    if (--answers->missing == 0) answers->all.set_value();
  });
  return all.wait_for(most) == std::future_status::ready;
}

Result<std::vector<std::string>> Daemon::TryReload() {
  ONNXD_ASSIGN_OR_RETURN(ServerOptions options, CatchExceptions(read_));
  // FirstModels has decided this.
  if (options.models.control_mode == "auto") {
    options.models.control_mode = options_.models.control_mode;
  }
  ONNXD_RETURN_IF_ERROR(ParseVersionPolicy(options.models.versions).status());
  ONNXD_ASSIGN_OR_RETURN(auto keys, AccessGate::ReadKeys(options));
  const auto changed = ChangedKeys(options_, options);
  std::vector<std::string> fixed;
  std::copy_if(changed.begin(), changed.end(), std::back_inserter(fixed),
               [](const std::string& key) { return !ChangesWhileServing(key); });
  if (!fixed.empty()) {
    return FailedPrecondition(
        StrCat("nothing was changed, since these keys need a restart: ", StrJoin(fixed, ", ")));
  }
  options_ = options;
  ConfigureLogging(options);
  gate_.SetKeys(std::move(keys));
  memory_->SetLimit(MemoryLimit(options));
  service_.Reconfigure(options);
  manager_.Reconfigure(options);
  return changed;
}

void Daemon::Reload() {
  const auto changed = TryReload();
  metrics_.CountConfigReload(changed.ok());
  if (!changed.ok()) {
    LogError(StrCat("the configuration stays as it was: ", changed.status().ToString()));
  } else {
    LogInfo(changed->empty()
                ? "the configuration was read again, nothing is new"
                : StrCat("the configuration was read again, new: ", StrJoin(*changed, ", ")));
  }
  service_.AnswerReloads(changed);
}

Status Daemon::LookAtDevices() {
  Status lost;
  std::map<std::string, ServerMetrics::DeviceState> states;
  for (const auto& device : UsedDevices()) {
    const DeviceStatistics statistics = device->statistics();
    // One GPU may be used with several options.
    auto& state = states[std::string(device->name())];
    state.device = device->name();
    state.lost = state.lost || device->lost();
    state.memory_bytes = static_cast<double>(statistics.memory_bytes);
    state.used_bytes = std::max(state.used_bytes, 0.0) + static_cast<double>(statistics.used_bytes);
    state.kept_bytes = std::max(state.kept_bytes, 0.0) + static_cast<double>(statistics.kept_bytes);
    if (statistics.total_bytes) state.total_bytes = static_cast<double>(*statistics.total_bytes);
    if (statistics.utilization) state.utilization = *statistics.utilization;
    if (statistics.power_watts) state.power_watts = *statistics.power_watts;
    if (device->lost() && lost.ok()) lost = device->loss().WithContext(device->name());
  }
  std::vector<ServerMetrics::DeviceState> all;
  for (auto& [name, state] : states) all.push_back(std::move(state));
  metrics_.SetDevices(all);
  return lost;
}

void Daemon::BeginDrain() {
  LogInfo("draining");
  service_.BeginDrain();
  http_.AnnounceDrain();
  grpc_.AnnounceDrain();  // whoever connects again is served
}

void Daemon::Drain(const sigset_t& signals) {
  for (const auto& listener : listeners_) listener->Close();
  http_.BeginDrain();
  grpc_.BeginDrain();
  (void)Responds(std::chrono::seconds(5));  // what idle connections are told is on its way
  const auto begin = std::chrono::steady_clock::now();
  auto quiet_since = begin;
  auto now = begin;
  // Idle clients read what they are told, and close.
  while (now - begin < std::chrono::seconds(options_.limits.drain_timeout_s)) {
    if (http_.busy() + grpc_.busy() + service_.in_flight() > 0) {
      quiet_since = now;
    } else if (grpc_.connections() == 0 || now - quiet_since > kFarewell) {
      break;
    }
    if (WaitForSignal(signals, std::chrono::milliseconds(5)) != 0) break;
    now = std::chrono::steady_clock::now();
  }
  metrics_listener_->Close();
  // I/O first, so that nothing new is queued; then what still runs may post to stopped threads.
  io_.Stop();
  scheduler_.Abandon();
  manager_.Stop();
  LogInfo("stopped");
}

BodyBudget Daemon::Budget() {
  return {[this](int64_t bytes) { return service_.AdmitBytes(bytes); },
          [this](int64_t bytes) { service_.ReleaseBytes(bytes); }};
}

}  // namespace onnxd
