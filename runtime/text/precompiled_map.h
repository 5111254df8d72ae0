// What characters become before sentencepiece looks at them: a table from texts to texts, as its
// models carry it ("precompiled_charsmap"). Source: sentencepiece's normalizer and Darts-clone
// (https://github.com/s-yata/darts-clone), whose arrays it is made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

// Immutable once made; any thread. What the bytes say is checked as it is followed.
class PrecompiledMap {
 public:
  PrecompiledMap() = default;  // maps nothing
  // Fails where the sizes in `bytes` do not fit.
  static Result<PrecompiledMap> Parse(std::string_view bytes);

  struct Match {
    std::string_view replacement;
    size_t bytes = 0;  // of the text; 0: nothing there is mapped
  };
  // The longest that is mapped at `at`.
  Match Longest(std::string_view text, size_t at) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends with a 0
};

}  // namespace onnxd
