// What a service manager such as systemd is told (Type=notify, WatchdogSec=): the protocol of
// sd_notify(3).
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace onnxd {

class ServiceManager {
 public:
  // From the environment: NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID. Nothing there: nobody
  // listens.
  ServiceManager();

  // For example "READY=1". Whoever does not listen any more is no error.
  void Notify(const std::string& state) const;

  // How often "WATCHDOG=1" should be said, half of what is allowed; nullopt: nobody asks for it.
  std::optional<std::chrono::milliseconds> watchdog_interval() const { return interval_; }

 private:
  std::string socket_;
  std::optional<std::chrono::milliseconds> interval_;
};

}  // namespace onnxd
