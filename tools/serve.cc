// onnxd serve: the daemon.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "server/models/beside.h"
#include "server/sources/remote_sources.h"
#include "tools/command.h"
#include "tools/daemon.h"
#include "tools/memory_reserve.h"
#include "tools/serve_setup.h"
#include "tools/service_manager.h"

namespace onnxd {
namespace {

sigset_t SetOf(std::initializer_list<int> numbers) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : numbers) sigaddset(&signals, number);
  return signals;
}

const sigset_t kEnding = SetOf({SIGTERM, SIGINT});
const sigset_t kEndingOrReload = SetOf({SIGTERM, SIGINT, SIGHUP});

constexpr auto kLook = std::chrono::seconds(2);

// Those are waited for; SIGPIPE would end the process on a closed socket, and the others for
// nothing.
void BlockSignals() {
  for (const int number : {SIGPIPE, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
  pthread_sigmask(SIG_BLOCK, &kEndingOrReload, nullptr);
}

// The signal that ends the daemon, or why it ends without one. Until then the configuration is read
// again when asked for, and the service manager hears that the daemon works.
Result<int> AwaitEnd(const ServiceManager& manager, Daemon& daemon) {
  const auto watched = manager.watchdog_interval();
  const auto interval = std::min<std::chrono::milliseconds>(watched.value_or(kLook), kLook);
  while (true) {
    RefillMemoryReserve();
    daemon.RefreshTls();
    ONNXD_RETURN_IF_ERROR(daemon.LookAtDevices());
    const int received = WaitForSignal(kEndingOrReload, interval);
    if (received == SIGHUP) {
      manager.Notify("RELOADING=1");
      daemon.Reload();
      manager.Notify("READY=1");
    } else if (received != 0) {
      return received;
    }
    if (watched && daemon.Responds(*watched)) manager.Notify("WATCHDOG=1");
  }
}

// What to load: of repositories elsewhere, once their first models are here.
Result<std::vector<WantedVersion>> Expected(ServerOptions& options, RemoteSources& sources,
                                            Daemon& daemon) {
  ONNXD_RETURN_IF_ERROR(sources.SyncFirst(daemon.metrics()));
  ONNXD_ASSIGN_OR_RETURN(auto wanted, FirstModels(options));
  daemon.Expect(wanted);
  return wanted;
}

// Ends what served nothing.
int GiveUp(Daemon& daemon, const Status& failure) {
  Fail(failure);
  daemon.BeginDrain();
  daemon.Drain(kEnding);
  return kExitModelFailed;
}

// From the first load to the end; the exit code.
int RunDaemon(Daemon& daemon, ServerOptions& options, std::vector<WantedVersion> wanted,
              RemoteSources& sources) {
  Status first;
  auto loading = std::async(std::launch::async, [&] {
    if (!sources.empty()) {
      auto expected = Expected(options, sources, daemon);
      first = expected.status();
      if (!first.ok()) return std::vector<Status>();
      wanted = *std::move(expected);
    }
    return daemon.Load(wanted);
  });
  int received = 0;
  while (received == 0 && loading.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    received = WaitForSignal(kEnding, std::chrono::milliseconds(10));
  }
  if (received != 0) {
    sources.Stop();
    daemon.StopLoading();
  }
  const auto failures = loading.get();
  const bool single_file = wanted.size() == 1 && wanted[0].path == options.models.repository;
  if (single_file && !failures.empty()) return GiveUp(daemon, failures[0]);
  if (!first.ok() && received == 0) return GiveUp(daemon, first);
  sources.Follow(daemon.metrics());
  const ServiceManager manager;
  int code = kExitOk;
  if (received == 0) {
    manager.Notify("READY=1");
    const auto end = AwaitEnd(manager, daemon);
    if (end.ok()) {
      received = *end;
    } else {
      // Nothing that computes there can go on; another process can.
      LogError(StrCat(end.status().ToString(), "; this process ends"));
      code = kExitDeviceLost;
    }
  }
  sources.Stop();
  manager.Notify("STOPPING=1");
  const bool was_ready = daemon.Ready();
  daemon.BeginDrain();
  // Nobody who presses Ctrl-C waits for a load balancer, and none looks where nothing was ready.
  if (received == SIGTERM && was_ready) WaitForSignal(kEnding, daemon.drain_delay());
  daemon.Drain(kEnding);
  return code;
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
  KeepMemoryReserve();
  const auto sources = RemoteSources::Open(*options);
  if (!sources.ok()) return usage(sources.status());
  (*sources)->Localize(*options);
  const auto wanted = (*sources)->empty() ? FirstModels(*options) : std::vector<WantedVersion>();
  if (!wanted.ok()) return usage(wanted.status());
  // Before it has threads, which would take signals otherwise.
  BlockSignals();
  const auto session = SessionOptionsOf(*options);
  if (!session.ok()) return usage(session.status());
  auto keys = AccessGate::ReadKeys(*options);
  if (!keys.ok()) return usage(keys.status());
  if (keys->empty() && !options->access.key_file.empty()) {
    return usage(InvalidArgument(StrCat(options->access.key_file, " holds no keys")));
  }

  Daemon daemon(*options, *session, *std::move(keys), [flags, &sources] {
    auto read = ReadOptions(flags);
    if (read.ok()) (*sources)->Localize(*read);
    return read;
  });
  const Status listening = daemon.Listen();
  if (!listening.ok()) {
    Fail(listening);
    return listening.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitPortInUse;
  }
  daemon.Expect(*wanted);
  daemon.Start();
  const int code = RunDaemon(daemon, *options, *wanted, **sources);
  if (WorkIsLeftBehind()) {  // a load that hangs goes on while statics would be destroyed
    std::fflush(nullptr);
    _exit(code);
  }
  return code;
}

}  // namespace onnxd
