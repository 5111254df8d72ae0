// TextStream: the text of tokens as they come.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/text/token_decoder.h"

namespace onnxd {

// One thread at a time. Gives whole characters only, nothing of a text that ends the stream, and
// nothing that may be the beginning of one.
class TextStream {
 public:
  // `prompt`: the tokens before, which decide whether a blank begins the first one.
  TextStream(std::shared_ptr<const TokenDecoder> decoder, std::span<const int64_t> prompt,
             std::vector<std::string> stops, bool skip_special = true);

  // The text that is certain with this token. Nothing once it stopped.
  std::string Add(int64_t token);
  // What is left, when no token comes any more.
  std::string Finish();
  // One of `stops` came.
  bool stopped() const { return stopped_; }

 private:
  std::string Decoded(bool last);
  // Of what is pending.
  std::string Certain(bool last);

  const std::shared_ptr<const TokenDecoder> decoder_;
  const std::vector<std::string> stops_;
  const bool skip_special_;
  // Tokens whose text depends on one another: those that were given last, and behind `given_` the
  // others.
  std::vector<int64_t> tokens_;
  size_t given_ = 0;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace onnxd
