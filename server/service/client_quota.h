// ClientQuota: how many requests one client may have at once.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace onnxd {

// Any thread. Must outlive its tickets.
class ClientQuota {
 public:
  explicit ClientQuota(int64_t most) : most_(most) {}  // 0: any number

  // Counts a request of the client until the ticket is gone.
  using Ticket = std::shared_ptr<const void>;
  struct Entry {
    bool admitted;
    Ticket ticket;  // null where nothing is counted
  };
  Entry Enter(const std::string& client);

 private:
  void Leave(const std::string& client);

  const int64_t most_;
  std::mutex mutex_;
  std::unordered_map<std::string, int64_t> counts_;  // of those above 0; guarded by mutex_
};

}  // namespace onnxd
