// (domain, operator, version range) -> kernel factory. Filled once by a provider's explicit list.
#pragma once

#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/kernel/kernel.h"

namespace onnxd {

inline constexpr int kLatestVersion = std::numeric_limits<int>::max();

template <typename Factory>
struct BasicKernelEntry {
  std::string_view domain;
  std::string_view op;
  int first_version;  // since_version range that the factory understands, inclusive
  int last_version;
  Factory factory;
};

template <typename Factory>
class BasicKernelRegistry {
 public:
  using Entry = BasicKernelEntry<Factory>;

  explicit BasicKernelRegistry(std::span<const Entry> entries) {
    for (const Entry& entry : entries) entries_[{entry.domain, entry.op}].push_back(entry);
  }

  // Null when no entry covers the node.
  Factory Find(const Node& node) const {
    const auto found = entries_.find({node.domain, node.op_type});
    if (found == entries_.end()) return nullptr;
    for (const Entry& entry : found->second) {
      if (node.since_version >= entry.first_version && node.since_version <= entry.last_version) {
        return entry.factory;
      }
    }
    return nullptr;
  }

 private:
  std::map<std::pair<std::string_view, std::string_view>, std::vector<Entry>> entries_;
};

using KernelEntry = BasicKernelEntry<KernelFactory>;
using KernelRegistry = BasicKernelRegistry<KernelFactory>;

}  // namespace onnxd
