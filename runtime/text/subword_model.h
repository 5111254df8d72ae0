// SubwordModel: what makes tokens of a piece of text, such as a word.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace onnxd {

struct Token {
  int64_t id = 0;
  uint32_t begin = 0;  // bytes [begin, end) of the piece
  uint32_t end = 0;
  bool operator==(const Token&) const = default;
};

// Immutable once made; any thread.
class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  // Appends the tokens of `piece`, UTF-8, in order. Requires less than 2^31 bytes.
  virtual void Encode(std::string_view piece, std::vector<Token>& out) const = 0;
};

}  // namespace onnxd
