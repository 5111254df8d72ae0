#include "server/service/client_quota.h"

namespace onnxd {

ClientQuota::Entry ClientQuota::Enter(const std::string& client) {
  if (most_ == 0) return {true, nullptr};
  {
    std::lock_guard lock(mutex_);
    const auto known = counts_.find(client);
    if (known != counts_.end() && known->second >= most_) return {false, nullptr};
    ++counts_[client];
  }
  return {true, Ticket(new std::string(client), [this](const std::string* name) {
            Leave(*name);
            delete name;
          })};
}

void ClientQuota::Leave(const std::string& client) {
  std::lock_guard lock(mutex_);
  const auto known = counts_.find(client);
  if (--known->second == 0) counts_.erase(known);
}

}  // namespace onnxd
