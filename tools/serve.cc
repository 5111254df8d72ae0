// onnxd serve: the daemon.
#include <malloc.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <thread>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/plugin/plugin.h"
#include "runtime/providers/default_providers.h"
#include "runtime/session/prepared_model_cache.h"
#include "server/config/server_options.h"
#include "server/grpc/grpc_api.h"
#include "server/grpc/grpc_server.h"
#include "server/http/http_server.h"
#include "server/http/rest_api.h"
#include "tools/command.h"
#include "tools/service_manager.h"

extern char** environ;

namespace onnxd {
namespace {

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const size_t cut = text.find('=');
    if (cut != std::string::npos) variables[text.substr(0, cut)] = text.substr(cut + 1);
  }
  return variables;
}

Result<ServerOptions> ReadOptions(const ServeFlags& flags) {
  ServerOptions options;
  if (!flags.config.empty()) ONNXD_RETURN_IF_ERROR(ApplyConfigFile(flags.config, options));
  ONNXD_RETURN_IF_ERROR(ApplyEnvironment(Environment(), options));
  for (const auto& [section_key, value] : flags.overrides) {
    for (const OptionKey& key : OptionKeys()) {
      if (StrCat(key.section, ".", key.key) == section_key) {
        ONNXD_RETURN_IF_ERROR(key.set(options, value).WithContext(section_key));
      }
    }
  }
  return options;
}

void ConfigureLogging(const ServerOptions& options) {
  const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::kDebug},
                                                  {"info", LogLevel::kInfo},
                                                  {"warning", LogLevel::kWarning},
                                                  {"error", LogLevel::kError},
                                                  {"off", LogLevel::kOff}};
  ConfigureLog(levels.at(options.log.level),
               options.log.format == "json" ? LogFormat::kJson : LogFormat::kText);
}

int ExecutorCount(const ServerOptions& options) {
  if (options.runtime.executors > 0) return static_cast<int>(options.runtime.executors);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Result<SessionOptions> SessionOptionsOf(const ServerOptions& options) {
  SessionOptions session;
  session.optimization = *OptimizationLevelFromName(options.runtime.optimization);
  ONNXD_ASSIGN_OR_RETURN(session.providers,
                         MakeProviders(SplitList(options.runtime.providers, ',')));
  // Models that need the missing operators say so; the others are served.
  for (const Status& failure :
       AddPlugins(SplitList(options.runtime.plugins, ','), session.providers)) {
    LogError(failure.ToString());
  }
  session.pool = std::make_shared<ThreadPool>(static_cast<int>(options.runtime.threads));
  session.max_run_bytes = options.runtime.max_run_bytes;
  session.precision = *PrecisionFromName(options.runtime.precision);
  session.denormals_as_zero = options.runtime.denormals_as_zero;
  if (!options.runtime.cache_dir.empty()) {
    auto cache = PreparedModelCache::Open(options.runtime.cache_dir,
                                          static_cast<uint64_t>(options.runtime.cache_bytes));
    if (cache.ok()) {
      session.cache = std::move(*cache);
    } else {
      LogWarning(StrCat(cache.status().ToString(), "; models are prepared anew at each start"));
    }
  }
  return session;
}

// Bodies of requests keep their pages from one to the next: a refused image of 600 KB costs 0.4 ms
// of processor time instead of 0.7. What is free beyond 32 MB goes back to the system.
void TuneAllocator() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
#endif
}

// SIGTERM and SIGINT are waited for; SIGPIPE would end the process on a closed socket.
sigset_t BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// The signal that came within that time, or 0.
int WaitForSignal(const sigset_t& signals, std::chrono::milliseconds most) {
  const timespec time{most.count() / 1000, most.count() % 1000 * 1'000'000};
  return std::max(0, sigtimedwait(&signals, nullptr, &time));
}

// The parts of the running daemon, in the order of construction; destroyed in reverse.
class Daemon {
 public:
  Daemon(const ServerOptions& options, const SessionOptions& session)
      : options_(options),
        scheduler_({ExecutorCount(options), options.limits.queue_requests,
                    static_cast<int>(options.server.io_threads) - 1,
                    options.batching.priority_levels, options.batching.default_priority_level},
                   metrics_),
        manager_(session, options, registry_, scheduler_, metrics_),
        service_(registry_, manager_, scheduler_, metrics_, options.models.default_model,
                 options.limits.buffered_bytes),
        api_(service_, options.limits),
        grpc_api_(service_),
        io_(static_cast<int>(options.server.io_threads)),
        http_(options.limits, Budget(), metrics_,
              [this](HttpRequest request, HttpRespond respond) {
                api_.Handle(std::move(request), std::move(respond));
              }),
        metrics_http_(options.limits, Budget(), metrics_,
                      [this](HttpRequest request, HttpRespond respond) {
                        api_.HandleMetricsPort(std::move(request), std::move(respond));
                      }),
        grpc_(options.limits,
              {[this](int64_t bytes) { return service_.AdmitBytes(bytes); },
               [this](int64_t bytes) { service_.ReleaseBytes(bytes); }},
              metrics_, [this](GrpcCall call, GrpcRespond respond) {
                grpc_api_.Handle(std::move(call), std::move(respond));
              }) {}

  Status Listen() {
    const ServerOptions::Listen& listen = options_.server;
    const auto bind = [&](int64_t port, auto& server) {
      return Listener::Bind(io_.context(), listen.bind, static_cast<int>(port), metrics_,
                            [&server](TcpSocket socket) { server.Serve(std::move(socket)); });
    };
    ONNXD_ASSIGN_OR_RETURN(http_listener_, bind(listen.http_port, http_));
    ONNXD_ASSIGN_OR_RETURN(grpc_listener_, bind(listen.grpc_port, grpc_));
    ONNXD_ASSIGN_OR_RETURN(metrics_listener_, bind(listen.metrics_port, metrics_http_));
    return Status::Ok();
  }

  void Start() {
    io_.Start();
    http_listener_->Start();
    grpc_listener_->Start();
    metrics_listener_->Start();
    const char* host = options_.server.bind.c_str();
    std::printf("onnxd " ONNXD_VERSION
                " listens on http://%s:%d, grpc://%s:%d and http://%s:%d/metrics\n",
                host, http_listener_->port(), host, grpc_listener_->port(), host,
                metrics_listener_->port());
    std::fflush(stdout);
  }

  // Before Start.
  void Expect(const std::vector<WantedVersion>& wanted) { manager_.Expect(wanted); }

  void StopLoading() { manager_.StopLoading(); }

  std::vector<Status> Load(const std::vector<WantedVersion>& wanted) {
    auto failures = manager_.LoadAll(wanted);
    if (!manager_.first_load_done()) return failures;
    if (service_.Ready()) {
      std::printf("ready: %s\n", StrJoin(service_.ModelNames(), ", ").c_str());
    } else {
      std::printf("not ready: %zu of %zu models failed to load\n", failures.size(), wanted.size());
    }
    std::fflush(stdout);
    manager_.Follow();
    return failures;
  }

  bool Ready() const { return service_.Ready(); }

  // Whether an I/O thread comes to work within that time.
  bool Responds(std::chrono::milliseconds most) {
    const auto answered = std::make_shared<std::promise<void>>();
    auto answer = answered->get_future();
    io_.Post([answered] { answered->set_value(); });
    return answer.wait_for(most) == std::future_status::ready;
  }

  // Not ready any more, but serving: load balancers need a moment to notice.
  void BeginDrain() {
    LogInfo("draining");
    service_.BeginDrain();
    http_.AnnounceDrain();
    grpc_.BeginDrain();  // GOAWAY; whoever connects again is served
  }

  // No new connections; what is in flight is finished within the drain timeout, or until one of
  // `signals` comes.
  void Drain(const sigset_t& signals) {
    http_listener_->Close();
    grpc_listener_->Close();
    http_.BeginDrain();
    grpc_.BeginDrain();
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(options_.limits.drain_timeout_s);
    while (http_.busy() + grpc_.busy() + service_.in_flight() > 0 &&
           std::chrono::steady_clock::now() < deadline) {
      if (WaitForSignal(signals, std::chrono::milliseconds(5)) != 0) break;
    }
    metrics_listener_->Close();
    // I/O first, so that nothing new is queued; then what still runs may post to stopped threads.
    io_.Stop();
    scheduler_.Abandon();
    manager_.Stop();
    LogInfo("stopped");
  }

 private:
  BodyBudget Budget() {
    return {[this](int64_t bytes) { return service_.AdmitBytes(bytes); },
            [this](int64_t bytes) { service_.ReleaseBytes(bytes); }};
  }

  const ServerOptions options_;
  ServerMetrics metrics_;
  ModelRegistry registry_;
  Scheduler scheduler_;
  ModelManager manager_;
  InferenceService service_;
  RestApi api_;
  GrpcApi grpc_api_;
  IoThreads io_;
  HttpServer http_, metrics_http_;
  GrpcServer grpc_;
  std::shared_ptr<Listener> http_listener_, grpc_listener_, metrics_listener_;
};

// The signal that ends the daemon. Until then the service manager hears that it works.
int AwaitSignal(const sigset_t& signals, const ServiceManager& manager, Daemon& daemon) {
  const auto watched = manager.watchdog_interval();
  while (true) {
    const int received = WaitForSignal(signals, watched.value_or(std::chrono::hours(1)));
    if (received != 0) return received;
    if (watched && daemon.Responds(*watched)) manager.Notify("WATCHDOG=1");
  }
}

// What the repository holds at the start, and how it is followed if that is left open.
Result<std::vector<WantedVersion>> FirstModels(ServerOptions& options) {
  ServerOptions::Models& models = options.models;
  if (models.repository.empty()) {
    return InvalidArgument("no model: name a MODEL.onnx, a repository folder, or --config");
  }
  auto policy = ParseVersionPolicy(models.versions);
  if (!policy.ok()) return policy.status().WithContext("models.versions");
  ONNXD_ASSIGN_OR_RETURN(auto wanted,
                         ScanRepository(models.repository, models.model_name, *policy));
  if (models.control_mode == "explicit") return std::vector<WantedVersion>{};
  if (wanted.empty() && models.control_mode != "poll") {
    return InvalidArgument(StrCat("no models in ", models.repository, ": expected ",
                                  models.repository, "/NAME/VERSION/model.onnx"));
  }
  if (models.control_mode == "auto") {
    models.control_mode = wanted[0].path == models.repository ? "fixed" : "poll";
  }
  return wanted;
}

// From the first load to the end; the exit code.
int RunDaemon(Daemon& daemon, const ServerOptions& options,
              const std::vector<WantedVersion>& wanted, const sigset_t& signals) {
  auto loading = std::async(std::launch::async, [&] { return daemon.Load(wanted); });
  int received = 0;
  while (received == 0 && loading.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    received = WaitForSignal(signals, std::chrono::milliseconds(10));
  }
  if (received != 0) daemon.StopLoading();
  const auto failures = loading.get();
  const bool single_file = wanted.size() == 1 && wanted[0].path == options.models.repository;
  if (single_file && !failures.empty()) {
    Fail(failures[0]);
    daemon.BeginDrain();
    daemon.Drain(signals);
    return kExitModelFailed;
  }
  const ServiceManager manager;
  if (received == 0) {
    manager.Notify("READY=1");
    received = AwaitSignal(signals, manager, daemon);
  }
  manager.Notify("STOPPING=1");
  const bool was_ready = daemon.Ready();
  daemon.BeginDrain();
  // Nobody who presses Ctrl-C waits for a load balancer, and none looks where nothing was ready.
  if (received == SIGTERM && was_ready) {
    WaitForSignal(signals, std::chrono::seconds(options.limits.drain_delay_s));
  }
  daemon.Drain(signals);
  return kExitOk;
}

}  // namespace

int Serve(const ServeFlags& flags) {
  const auto usage = [](const Status& status) {
    Fail(status);
    return kExitUsage;
  };
  auto options = ReadOptions(flags);
  if (!options.ok()) return usage(options.status());
  ConfigureLogging(*options);
  TuneAllocator();
  const auto wanted = FirstModels(*options);
  if (!wanted.ok()) return usage(wanted.status());
  const auto session = SessionOptionsOf(*options);
  if (!session.ok()) return usage(session.status());

  const sigset_t signals = BlockSignals();
  Daemon daemon(*options, *session);
  const Status listening = daemon.Listen();
  if (!listening.ok()) {
    Fail(listening);
    return listening.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitPortInUse;
  }
  daemon.Expect(*wanted);
  daemon.Start();
  return RunDaemon(daemon, *options, *wanted, signals);
}

}  // namespace onnxd
