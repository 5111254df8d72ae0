#include "runtime/text/byte_pair_encoding.h"

#include <algorithm>
#include <bit>

#include "runtime/text/byte_tokens.h"
#include "runtime/text/merge_symbols.h"
#include "runtime/text/unicode.h"

namespace onnxd {
namespace {

constexpr int32_t kNoToken = -1;
constexpr uint64_t kFree = ~uint64_t{0};

uint64_t Key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Source: the finalizer of MurmurHash3 (https://github.com/aappleby/smhasher).
uint64_t Mix(uint64_t key) {
  key = (key ^ key >> 33) * 0xff51afd7ed558ccdULL;
  key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ULL;
  return key ^ key >> 33;
}

int32_t FindOr(const Vocabulary& vocabulary, std::string_view token, int32_t otherwise) {
  const auto found = vocabulary.Find(token);
  return found ? static_cast<int32_t>(*found) : otherwise;
}

}  // namespace

const std::array<char32_t, 256>& ByteCharacters() {
  static const auto characters = [] {
    std::array<char32_t, 256> of{};
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      of[byte] = printable ? byte : next++;
    }
    return of;
  }();
  return characters;
}

std::unique_ptr<BytePairEncoding> BytePairEncoding::Make(
    std::shared_ptr<const Vocabulary> vocabulary, const Pairs& merges, BytePairOptions options) {
  auto model = std::make_unique<BytePairEncoding>();
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string character;
    AppendCodePoint(ByteCharacters()[byte], character);
    model->byte_tokens_[byte] = FindOr(*vocabulary, character, kNoToken);
    model->last_byte_tokens_[byte] = FindOr(*vocabulary, character + options.word_suffix, kNoToken);
    model->fallback_tokens_[byte] = FindOr(*vocabulary, ByteToken(byte), kNoToken);
  }
  // At most half full.
  model->merges_.assign(std::bit_ceil(std::max<size_t>(merges.size(), 1) * 2), {kFree, {}});
  uint32_t rank = 0;
  std::string whole;
  for (const auto& [left, right] : merges) {
    std::string_view tail = right;
    const std::string& prefix = options.continuing_prefix;
    if (!prefix.empty() && tail.starts_with(prefix)) tail.remove_prefix(prefix.size());
    whole.assign(left).append(tail);
    const int32_t l = FindOr(*vocabulary, left, kNoToken), r = FindOr(*vocabulary, right, kNoToken);
    const int32_t id = FindOr(*vocabulary, whole, kNoToken);
    if (l != kNoToken && r != kNoToken && id != kNoToken) model->AddMerge(l, r, {rank, id});
    ++rank;
  }
  model->vocabulary_ = std::move(vocabulary);
  model->options_ = std::move(options);
  return model;
}

void BytePairEncoding::AddMerge(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = Key(left, right);
  size_t at = Mix(key) & (merges_.size() - 1);
  while (merges_[at].first != kFree && merges_[at].first != key)
    at = (at + 1) & (merges_.size() - 1);
  // Of a pair that is named twice the later counts, as in a map that is written again.
  merges_[at] = {key, merge};
}

const BytePairEncoding::Merge* BytePairEncoding::FindMerge(int32_t left, int32_t right) const {
  const uint64_t key = Key(left, right);
  for (size_t at = Mix(key) & (merges_.size() - 1);; at = (at + 1) & (merges_.size() - 1)) {
    if (merges_[at].first == key) return &merges_[at].second;
    if (merges_[at].first == kFree) return nullptr;
  }
}

void BytePairEncoding::AddUnknown(std::string_view word, Token symbol, size_t first,
                                  std::vector<Token>& out) const {
  if (options_.byte_fallback) {
    const std::string_view bytes = word.substr(symbol.begin, symbol.end - symbol.begin);
    const auto token = [&](char byte) {
      return fallback_tokens_[static_cast<unsigned char>(byte)];
    };
    if (std::none_of(bytes.begin(), bytes.end(), [&](char b) { return token(b) == kNoToken; })) {
      for (uint32_t at = symbol.begin; at < symbol.end; ++at) {
        out.push_back({token(word[at]), at, at + 1});
      }
      return;
    }
  }
  if (!options_.unknown) return;
  if (options_.fuse_unknown && out.size() > first && out.back().id == *options_.unknown &&
      out.back().end == symbol.begin) {
    out.back().end = symbol.end;
    return;
  }
  symbol.id = *options_.unknown;
  out.push_back(symbol);
}

void BytePairEncoding::AddSymbols(std::string_view word, std::vector<Token>& out) const {
  const size_t first = out.size();
  std::string name;
  for (size_t at = 0; at < word.size();) {
    const auto byte = static_cast<unsigned char>(word[at]);
    const size_t bytes = options_.bytes ? 1 : CodePointAt(word, at).bytes;
    const bool last = at + bytes == word.size();
    int32_t id;
    if (options_.bytes) {
      id = last ? last_byte_tokens_[byte] : byte_tokens_[byte];
    } else {
      name.assign(at == 0 ? std::string_view() : options_.continuing_prefix);
      name.append(word, at, bytes);
      if (last) name += options_.word_suffix;
      id = FindOr(*vocabulary_, name, kNoToken);
    }
    const Token symbol = {id, static_cast<uint32_t>(at), static_cast<uint32_t>(at + bytes)};
    if (id != kNoToken) {
      out.push_back(symbol);
    } else {
      AddUnknown(word, symbol, first, out);
    }
    at += bytes;
  }
}

std::string BytePairEncoding::Written(std::string_view bytes) const {
  if (!options_.bytes) return std::string(bytes);
  std::string written;
  for (const char byte : bytes) {
    AppendCodePoint(ByteCharacters()[static_cast<unsigned char>(byte)], written);
  }
  return written;
}

void BytePairEncoding::Encode(std::string_view word, std::vector<Token>& out) const {
  if (options_.whole_words_first) {
    if (const auto id = vocabulary_->Find(Written(word) + options_.word_suffix)) {
      out.push_back({*id, 0, static_cast<uint32_t>(word.size())});
      return;
    }
  }
  const size_t first = out.size();
  AddSymbols(word, out);
  const auto find = [&](const Token& left, const Token& right) -> std::optional<PossibleMerge> {
    const Merge* merge = FindMerge(static_cast<int32_t>(left.id), static_cast<int32_t>(right.id));
    if (merge == nullptr) return std::nullopt;
    return PossibleMerge{static_cast<double>(merge->rank), merge->id};
  };
  MergeSymbols(out, first, find);
}

}  // namespace onnxd
