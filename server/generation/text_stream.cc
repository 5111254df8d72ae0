#include "server/generation/text_stream.h"

#include <algorithm>
#include <utility>

namespace onnxd {
namespace {

constexpr size_t kTokensBefore = 6;  // of a prompt
constexpr size_t kMostBytesOfCharacter = 4;
// Bytes that are no character stay none after so many tokens.
constexpr size_t kMostUnfinished = 16;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Of whole characters.
size_t CommonBytes(std::string_view a, std::string_view b) {
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  auto common = static_cast<size_t>(in_b - b.begin());
  while (common > 0 && common < b.size() &&
         (static_cast<unsigned char>(b[common]) & 0xc0) == 0x80) {
    --common;
  }
  return common;
}

// How many bytes at its end may begin `stop`.
size_t BegunAtEnd(std::string_view text, std::string_view stop) {
  for (size_t bytes = std::min(text.size(), stop.size() - 1); bytes > 0; --bytes) {
    if (text.ends_with(stop.substr(0, bytes))) return bytes;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(std::shared_ptr<const TokenDecoder> decoder, std::span<const int64_t> prompt,
                       std::vector<std::string> stops, bool skip_special)
    : decoder_(std::move(decoder)), stops_(std::move(stops)), skip_special_(skip_special) {
  const auto last = prompt.last(std::min(prompt.size(), kTokensBefore));
  tokens_.assign(last.begin(), last.end());
  given_ = tokens_.size();
  // A character that the prompt begins comes whole with its end.
  const auto ends_within = [this] {
    const std::span<const int64_t> given(tokens_.data(), given_);
    return decoder_->Decode(given, skip_special_).ends_with(kReplacement);
  };
  const size_t least = given_ - std::min(given_, kMostBytesOfCharacter - 1);
  while (given_ > least && ends_within()) --given_;
}

// What the tokens add to the text of those before. A text that ends within a character waits. What
// writes nothing keeps those before it: they say whether a blank begins the next one.
std::string TextStream::Decoded(bool last) {
  const std::span<const int64_t> all(tokens_);
  const std::string before = decoder_->Decode(all.first(given_), skip_special_);
  const std::string with = decoder_->Decode(all, skip_special_);
  const bool unfinished = with.ends_with(kReplacement) && tokens_.size() - given_ < kMostUnfinished;
  if ((unfinished && !last) || with.size() <= before.size()) return {};
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(given_));
  given_ = tokens_.size();
  return with.substr(CommonBytes(before, with));
}

std::string TextStream::Certain(bool last) {
  size_t end = pending_.npos;
  for (const std::string& stop : stops_) end = std::min(end, pending_.find(stop));
  if (end != pending_.npos) {
    stopped_ = true;
    return pending_.substr(0, end);
  }
  size_t held = 0;
  if (!last) {
    for (const std::string& stop : stops_) held = std::max(held, BegunAtEnd(pending_, stop));
  }
  std::string certain = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, certain.size());
  return certain;
}

std::string TextStream::Add(int64_t token) {
  if (stopped_) return {};
  tokens_.push_back(token);
  pending_ += Decoded(false);
  return Certain(false);
}

std::string TextStream::Finish() {
  if (stopped_) return {};
  if (tokens_.size() > given_) pending_ += Decoded(true);
  return Certain(true);
}

}  // namespace onnxd
