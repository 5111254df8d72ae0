#include "tools/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <future>

#include "runtime/base/exceptions.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "tools/serve_setup.h"

namespace onnxd {
namespace {

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
      manager_(session, options, registry_, scheduler_, metrics_, memory_),
      service_(registry_, manager_, scheduler_, metrics_, memory_, options),
      gate_(options, std::move(keys)),
      api_(service_, gate_, options.limits),
      grpc_api_(service_, gate_),
      io_(static_cast<int>(options.server.io_threads)),
      http_(options, Budget(), metrics_,
            [this](HttpRequest request, HttpRespond respond) {
              api_.Handle(std::move(request), std::move(respond));
            }),
      metrics_http_(options, Budget(), metrics_,
                    [this](HttpRequest request, HttpRespond respond) {
                      api_.HandleMetricsPort(std::move(request), std::move(respond));
                    }),
      grpc_(options.limits,
            {[this](int64_t bytes) { return service_.AdmitBytes(bytes); },
             [this](int64_t bytes) { service_.ReleaseBytes(bytes); }},
            metrics_, [this](GrpcCall call, GrpcRespond respond) {
              grpc_api_.Handle(std::move(call), std::move(respond));
            },
            [this](const GrpcCall& call, std::shared_ptr<GrpcWriter> writer) {
              return grpc_api_.OpenStream(call, std::move(writer));
            }) {
  metrics_.SetMemory(memory_);
  // The thread that waits for signals does the work.
  service_.SetReload([] { kill(getpid(), SIGHUP); });
}

Status Daemon::Listen() {
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

void Daemon::Start() {
  for (const auto& listener : {http_listener_, grpc_listener_, metrics_listener_}) {
    io_.OnLostWork([listener] { listener->Revive(); });
  }
  io_.Start();
  http_listener_->Start();
  grpc_listener_->Start();
  metrics_listener_->Start();
  if (!gate_.why_admin_closed().empty()) {
    LogWarning(StrCat("calls that change the server are refused: ", gate_.why_admin_closed()));
  }
  const char* host = options_.server.bind.c_str();
  std::printf(
      "onnxd " ONNXD_VERSION " listens on http://%s:%d, grpc://%s:%d and http://%s:%d/metrics\n",
      host, http_listener_->port(), host, grpc_listener_->port(), host, metrics_listener_->port());
  std::fflush(stdout);
}

std::vector<Status> Daemon::Load(const std::vector<WantedVersion>& wanted) {
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

bool Daemon::Responds(std::chrono::milliseconds most) {
  const auto answered = std::make_shared<std::promise<void>>();
  auto answer = answered->get_future();
  io_.Post([answered] { answered->set_value(); });
  return answer.wait_for(most) == std::future_status::ready;
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

void Daemon::BeginDrain() {
  LogInfo("draining");
  service_.BeginDrain();
  http_.AnnounceDrain();
  grpc_.BeginDrain();  // GOAWAY; whoever connects again is served
}

void Daemon::Drain(const sigset_t& signals) {
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

BodyBudget Daemon::Budget() {
  return {[this](int64_t bytes) { return service_.AdmitBytes(bytes); },
          [this](int64_t bytes) { service_.ReleaseBytes(bytes); }};
}

}  // namespace onnxd
