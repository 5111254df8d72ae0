// SequenceControl: which sequence a request belongs to, and where in it. The parameters
// sequence_id, sequence_start and sequence_end of Triton's sequence extension:
// https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_sequence.md
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace onnxd {

struct SequenceControl {
  // A number or a text; 0 and "": none. 5 and "5" are two sequences.
  struct Id {
    uint64_t number = 0;
    std::string text;
    bool given() const { return number != 0 || !text.empty(); }
    auto operator<=>(const Id&) const = default;
  };
  static constexpr size_t kMostIdBytes = 128;

  Id id;
  bool starts = false, ends = false;
};

}  // namespace onnxd
