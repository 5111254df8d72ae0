#include "tests/fuzz/served.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/machine.h"
#include "runtime/base/str_cat.h"
#include "tools/daemon.h"
#include "tools/serve_setup.h"

// clang's AddressSanitizer, which scripts/fuzz uses, counts allocations.
#if defined(__has_feature) && __has_include(<sanitizer/allocator_interface.h>)
#if __has_feature(address_sanitizer)
#include <sanitizer/allocator_interface.h>
#define ONNXD_COUNTS_ALLOCATIONS 1
#endif
#endif

namespace onnxd {
namespace {

// Under sanitizers, which make both several times what they are.
constexpr double kSeconds = 1, kSecondsPerByte = 100e-6;
constexpr int64_t kBytes = int64_t{64} << 20, kBytesPerByte = 512;
constexpr int64_t kGrowth = int64_t{64} << 20;
constexpr int64_t kHealthEvery = 1000;

std::atomic<int64_t> allocated{0};

size_t InUse() {
#ifdef ONNXD_COUNTS_ALLOCATIONS
  return __sanitizer_get_current_allocated_bytes();
#else
  return 0;
#endif
}

void CountAllocations() {
#ifdef ONNXD_COUNTS_ALLOCATIONS
  __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, size_t size) {
        allocated.fetch_add(static_cast<int64_t>(size), std::memory_order_relaxed);
      },
      [](const volatile void*) {});
#endif
}

// Reloads and signals come as they do in `onnxd serve`.
void AnswerReloads(Daemon& daemon) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([&daemon, signals] {
    int signal = 0;
    while (sigwait(&signals, &signal) == 0) daemon.Reload();
  }).detach();
}

ServerOptions OptionsIn(const std::string& folder) {
  ServerOptions options;
  options.server.http_port = options.server.grpc_port = options.server.metrics_port = 0;
  options.server.http_socket = folder + "/rest";
  options.server.grpc_socket = folder + "/grpc";
  options.models.repository = ONNXD_FUZZ_MODELS;
  options.models.control_mode = "fixed";
  options.models.default_model = "iris_forest";
  options.limits.body_bytes = int64_t{1} << 20;
  options.limits.header_timeout_s = options.limits.idle_timeout_s = 5;
  options.log.requests = "off";
  options.log.level = "off";
  return options;
}

// libFuzzer's clock interrupts what waits.
template <typename Call>
ssize_t Uninterrupted(Call call) {
  ssize_t result = 0;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) Finding(result.status().ToString());
  return *std::move(result);
}

}  // namespace

void Finding(const std::string& text) {
  std::fprintf(stderr, "finding: %s\n", text.c_str());
  std::abort();
}

Served& Served::Get() {
  static Served served;
  return served;
}

Served::~Served() { std::filesystem::remove_all(folder_); }

Served::Served() {
  char name[] = "/tmp/onnxd_fuzz_XXXXXX";
  if (mkdtemp(name) == nullptr) Finding("no folder for sockets");
  folder_ = name;
  signal(SIGPIPE, SIG_IGN);
  // Before its threads, which inherit the mask.
  sigset_t hangup;
  sigemptyset(&hangup);
  sigaddset(&hangup, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &hangup, nullptr);
  ServerOptions options = OptionsIn(folder_);
  ConfigureLogging(options);
  const auto wanted = Must(FirstModels(options));
  daemon_ = std::make_unique<Daemon>(options, Must(SessionOptionsOf(options)), AccessGate::Keys(),
                                     [options] { return Result<ServerOptions>(options); });
  Daemon& daemon = *daemon_;
  AnswerReloads(daemon);
  const Status listening = daemon.Listen();
  if (!listening.ok()) Finding(listening.ToString());
  daemon.Expect(wanted);
  daemon.Start();
  for (const Status& failed : daemon.Load(wanted)) Finding(failed.ToString());
  CountAllocations();
}

std::string Served::Exchange(const std::string& path, std::string_view bytes, bool half_close) {
  const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    Finding(StrCat("nobody takes connections at ", path));
  }
  const timeval patience{20, 0};
  setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  // Less than the socket's buffer holds, or the server stops reading and closes.
  while (!bytes.empty()) {
    const ssize_t sent =
        Uninterrupted([&] { return send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL); });
    if (sent <= 0) break;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  if (half_close) shutdown(client, SHUT_WR);
  std::string answer;
  char buffer[16384];
  ssize_t got = 0;
  while ((got = Uninterrupted([&] { return recv(client, buffer, sizeof(buffer), 0); })) > 0) {
    answer.append(buffer, static_cast<size_t>(got));
  }
  if (got < 0 && errno == EAGAIN) Finding("a connection neither answered nor closed");
  close(client);
  return answer;
}

std::string Served::AskRest(std::string_view bytes, bool half_close) {
  return Charged("/rest", bytes, half_close);
}

std::string Served::AskGrpc(std::string_view bytes, bool half_close) {
  return Charged("/grpc", bytes, half_close);
}

std::string Served::Charged(const std::string& socket, std::string_view bytes, bool half_close) {
  CheckHealth();
  const double begin = CpuSeconds();
  allocated.store(0, std::memory_order_relaxed);
  std::string answer = Exchange(folder_ + socket, bytes, half_close);
  const auto size = static_cast<int64_t>(bytes.size());
  const double seconds = CpuSeconds() - begin;
  if (seconds > kSeconds + kSecondsPerByte * static_cast<double>(size)) {
    Finding(StrCat(size, " bytes took ", seconds, " s of processors"));
  }
  if (const int64_t count = allocated.load(std::memory_order_relaxed);
      count > kBytes + kBytesPerByte * size) {
    Finding(StrCat("for ", size, " bytes ", count, " were allocated"));
  }
  return answer;
}

void Served::CheckHealth() {
  if (exchanges_++ % kHealthEvery != 0) return;
  const std::string body = "{\"input\":[[5.1,3.5,1.4,0.2]]}";
  const std::string answer =
      Exchange(folder_ + "/rest",
               StrCat("POST /predict HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: ",
                      body.size(), "\r\n\r\n", body),
               false);
  if (!answer.starts_with("HTTP/1.1 200")) Finding(StrCat("an honest request got ", answer));
  const size_t now = InUse();
  if (exchanges_ == kHealthEvery + 1) settled_ = now;
  if (settled_ > 0 && now > settled_ + kGrowth) {
    Finding(StrCat("memory grew from ", settled_, " to ", now, " bytes"));
  }
}

}  // namespace onnxd
