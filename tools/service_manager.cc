#include "tools/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace onnxd {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

ServiceManager::ServiceManager() : socket_(Variable("NOTIFY_SOCKET")) {
  const int64_t allowed = std::strtoll(Variable("WATCHDOG_USEC").c_str(), nullptr, 10);
  const std::string asked = Variable("WATCHDOG_PID");
  if (allowed > 0 && (asked.empty() || asked == std::to_string(getpid()))) {
    interval_ = std::chrono::milliseconds(std::max<int64_t>(1, allowed / 2000));
  }
}

void ServiceManager::Notify(const std::string& state) const {
  sockaddr_un address{};
  if (socket_.empty() || socket_.size() >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (socket_[0] == '@') address.sun_path[0] = '\0';  // an abstract socket
  const int out = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (out < 0) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  (void)!sendto(out, state.data(), state.size(), MSG_NOSIGNAL,
                reinterpret_cast<const sockaddr*>(&address), length);
  close(out);
}

}  // namespace onnxd
