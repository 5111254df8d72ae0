// load: HTTP load for onnxd, from one thread that does nothing else.
//
//   load --port P --target /v2/models/m/infer --header "Name: value"... --body FILE
//        [--clients N] [--rate R] [--seconds S] [--warmup S]
//
// Without --rate each client sends its next request when it has the answer to the last (closed
// loop). With --rate requests are sent at that rate whatever the server does, each over a
// connection that is free, and time counts from when a request was due. Prints one JSON object.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/thread_slice.h"

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

struct Settings {
  int port = 8000;
  std::string target, body;
  std::vector<std::string> headers;
  int clients = 64;
  double rate = 0, seconds = 5, warmup = 1;
};

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

std::string RequestBytes(const Settings& settings) {
  std::string request = "POST " + settings.target + " HTTP/1.1\r\nHost: 127.0.0.1\r\n";
  for (const std::string& header : settings.headers) request += header + "\r\n";
  request += "Content-Length: " + std::to_string(settings.body.size()) + "\r\n\r\n";
  return request + settings.body;
}

// What came back, by status.
struct Answers {
  std::vector<double> milliseconds;
};

struct Client {
  int socket = -1;
  bool busy = false, waits_to_send = false;
  size_t sent = 0;  // of the request's bytes
  std::string received;
  Clock::time_point due;
};

class Load {
 public:
  explicit Load(const Settings& settings)
      : settings_(settings),
        request_(RequestBytes(settings)),
        clients_(static_cast<size_t>(settings.clients)) {
    epoll_ = epoll_create1(0);
    for (size_t i = 0; i < clients_.size(); ++i) Connect(i);
  }

  void Run() {
    const auto start = Clock::now();
    begin_ = start + std::chrono::duration_cast<Clock::duration>(Seconds(settings_.warmup));
    end_ = begin_ + std::chrono::duration_cast<Clock::duration>(Seconds(settings_.seconds));
    next_ = start;
    if (settings_.rate == 0) {
      for (size_t i = 0; i < clients_.size(); ++i) Begin(i, start);
    }
    std::vector<epoll_event> events(clients_.size());
    while (Clock::now() < end_) {
      const timespec timeout = UntilNext();
      const int count =
          epoll_pwait2(epoll_, events.data(), static_cast<int>(events.size()), &timeout, nullptr);
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<size_t>(i)];
        if ((event.events & EPOLLOUT) != 0) Send(event.data.u64);
        if ((event.events & ~EPOLLOUT) != 0) Receive(event.data.u64);
      }
      if (settings_.rate > 0) SendWhatIsDue();
    }
  }

  nlohmann::json Report() {
    nlohmann::json report = {{"seconds", settings_.seconds}, {"unsent", unsent_}};
    for (auto& [status, answers] : answers_) {
      auto& times = answers.milliseconds;
      std::sort(times.begin(), times.end());
      const auto at = [&](double part) {
        return times[std::min(times.size() - 1,
                              static_cast<size_t>(part * static_cast<double>(times.size())))];
      };
      report[std::to_string(status)] = {
          {"count", times.size()},
          {"per_second", static_cast<double>(times.size()) / settings_.seconds},
          {"p50_ms", at(0.5)},
          {"p99_ms", at(0.99)},
          {"max_ms", times.back()}};
    }
    return report;
  }

 private:
  void Connect(size_t index) {
    Client& client = clients_[index];
    if (client.socket >= 0) close(client.socket);
    client = Client{};
    client.socket = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(settings_.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(client.socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
      Fail("connect");
    const int on = 1;
    setsockopt(client.socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    WaitFor(EPOLL_CTL_ADD, index, EPOLLIN);
  }

  void WaitFor(int operation, size_t index, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = index;
    epoll_ctl(epoll_, operation, clients_[index].socket, &event);
  }

  void Begin(size_t index, Clock::time_point due) {
    Client& client = clients_[index];
    client.busy = true;
    client.due = due;
    client.received.clear();
    client.sent = 0;
    Send(index);
  }

  // As much as the connection takes now: others must not wait for it.
  void Send(size_t index) {
    Client& client = clients_[index];
    while (client.sent < request_.size()) {
      const ssize_t count = send(client.socket, request_.data() + client.sent,
                                 request_.size() - client.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno == EAGAIN) {
        if (!std::exchange(client.waits_to_send, true)) {
          WaitFor(EPOLL_CTL_MOD, index, EPOLLIN | EPOLLOUT);
        }
        return;
      }
      if (count <= 0) return Connect(index);
      client.sent += static_cast<size_t>(count);
    }
    if (std::exchange(client.waits_to_send, false)) WaitFor(EPOLL_CTL_MOD, index, EPOLLIN);
  }

  timespec UntilNext() const {
    if (settings_.rate == 0) return {0, 10'000'000};
    const auto left = std::clamp<int64_t>((next_ - Clock::now()).count(), 0, 10'000'000);
    return {0, left};
  }

  // Poisson arrivals.
  void SendWhatIsDue() {
    while (next_ <= Clock::now()) {
      const auto free =
          std::find_if(clients_.begin(), clients_.end(), [](const Client& c) { return !c.busy; });
      if (free == clients_.end()) {
        ++unsent_;
      } else {
        Begin(static_cast<size_t>(free - clients_.begin()), next_);
      }
      next_ +=
          std::chrono::duration_cast<Clock::duration>(Seconds(gaps_(random_) / settings_.rate));
    }
  }

  void Receive(size_t index) {
    Client& client = clients_[index];
    char buffer[65536];
    const ssize_t count = recv(client.socket, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      Connect(index);
      if (settings_.rate == 0) Begin(index, Clock::now());
      return;
    }
    client.received.append(buffer, static_cast<size_t>(count));
    const size_t head = client.received.find("\r\n\r\n");
    if (head == std::string::npos) return;
    const size_t length = ContentLength(client.received.substr(0, head));
    if (client.received.size() < head + 4 + length) return;
    const auto now = Clock::now();
    if (client.due >= begin_) {
      const int status = std::atoi(client.received.c_str() + 9);
      answers_[status].milliseconds.push_back(Seconds(now - client.due).count() * 1e3);
    }
    client.busy = false;
    if (client.sent < request_.size()) Connect(index);  // answered before it was all there
    if (settings_.rate == 0) Begin(index, now);
  }

  static size_t ContentLength(std::string head) {
    std::transform(head.begin(), head.end(), head.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    const size_t at = head.find("\ncontent-length:");
    return at == std::string::npos ? 0 : std::strtoull(head.c_str() + at + 16, nullptr, 10);
  }

  const Settings settings_;
  const std::string request_;
  int epoll_ = -1;
  std::vector<Client> clients_;
  std::map<int, Answers> answers_;
  Clock::time_point begin_, end_, next_;
  int64_t unsent_ = 0;
  std::mt19937 random_{1};
  std::exponential_distribution<double> gaps_{1.0};
};

}  // namespace

int main(int argc, char** argv) {
  // In earnest it runs on another machine: computing threads of the server must not hold it up.
  onnxd::RequestSlice(std::chrono::microseconds(100));
  Settings settings;
  std::string body;
  CLI::App app("HTTP load for onnxd");
  app.add_option("--port", settings.port)->required();
  app.add_option("--target", settings.target)->required();
  app.add_option("--body", body, "File with the body of each request")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--header", settings.headers);
  app.add_option("--clients", settings.clients, "Connections")->check(CLI::Range(1, 4096));
  app.add_option("--rate", settings.rate,
                 "Requests per second; without it each client waits for its answer");
  app.add_option("--seconds", settings.seconds);
  app.add_option("--warmup", settings.warmup, "Seconds before anything counts");
  CLI11_PARSE(app, argc, argv);
  std::ifstream file(body, std::ios::binary);
  settings.body.assign(std::istreambuf_iterator<char>(file), {});
  Load load(settings);
  load.Run();
  std::printf("%s\n", load.Report().dump().c_str());
  return 0;
}
