// ping_pong: what this machine takes for 300 bytes to another process and back over loopback, with
// nothing but blocking sockets; the floor of every request to a server. Prints the median in us.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kRounds = 20000;
constexpr size_t kBytes = 300;

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

void SendAtOnce(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

[[noreturn]] void Answer(int listener) {
  const int socket = accept(listener, nullptr, nullptr);
  SendAtOnce(socket);
  std::array<char, kBytes> buffer;
  ssize_t count = 0;
  while ((count = recv(socket, buffer.data(), buffer.size(), 0)) > 0) {
    if (send(socket, buffer.data(), static_cast<size_t>(count), 0) < 0) break;
  }
  _exit(0);
}

double MedianMicroseconds(int socket) {
  std::array<char, kBytes> buffer{};
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (send(socket, buffer.data(), buffer.size(), 0) < 0) Fail("send");
    if (recv(socket, buffer.data(), buffer.size(), MSG_WAITALL) <= 0) Fail("recv");
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count());
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

}  // namespace

int main() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, generic, size) != 0 || listen(listener, 1) != 0) Fail("listen");
  getsockname(listener, generic, &size);
  if (fork() == 0) Answer(listener);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(client, generic, size) != 0) Fail("connect");
  SendAtOnce(client);
  std::printf("%.1f\n", MedianMicroseconds(client));
  return 0;
}
