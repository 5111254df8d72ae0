// Tokens and their numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

// Any thread once filled.
class Vocabulary {
 public:
  // Of equal tokens the last counts. Requires 0 <= id < 2^31.
  void Set(std::string token, int64_t id);
  std::optional<int64_t> Find(std::string_view token) const;
  size_t size() const { return ids_.size(); }
  bool empty() const { return ids_.empty(); }

  // As PrefixTree takes them; valid as long as this is.
  std::vector<std::pair<std::string_view, int32_t>> Entries() const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> ids_;
};

// {"token": number, ...}; kInvalidArgument for what is no such object.
Result<std::shared_ptr<Vocabulary>> ParseVocabularyJson(std::string_view json);

}  // namespace onnxd
