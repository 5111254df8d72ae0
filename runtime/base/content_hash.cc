#include "runtime/base/content_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <vector>

namespace onnxd {
namespace {

constexpr size_t kChunkBytes = 256 << 10;

ContentHash From(XXH128_hash_t hash) { return {hash.low64, hash.high64}; }

// `reset` begins a hash.
Result<ContentHash> HashChunks(const ByteSource& source,
                               const std::function<void(XXH3_state_t*)>& reset) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  if (state == nullptr) return ResourceExhausted("no memory for a hash");
  reset(state.get());
  std::vector<char> chunk(kChunkBytes);
  for (uint64_t at = 0; at < source.size(); at += kChunkBytes) {
    const auto length = static_cast<size_t>(std::min<uint64_t>(kChunkBytes, source.size() - at));
    ONNXD_RETURN_IF_ERROR(source.ReadAt(at, chunk.data(), length));
    XXH3_128bits_update(state.get(), chunk.data(), length);
  }
  return From(XXH3_128bits_digest(state.get()));
}

}  // namespace

std::string ContentHash::Hex() const {
  std::string text;
  for (const uint64_t half : {high, low}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[half >> shift & 15];
  }
  return text;
}

HashSecret NewHashSecret() {
  std::random_device random;
  HashSecret secret(kHashSecretBytes, '\0');
  for (char& byte : secret) byte = static_cast<char>(random());
  return secret;
}

ContentHash HashBytes(std::string_view bytes) {
  return From(XXH3_128bits(bytes.data(), bytes.size()));
}

ContentHash HashBytes(std::string_view bytes, const HashSecret& secret) {
  return From(XXH3_128bits_withSecret(bytes.data(), bytes.size(), secret.data(), secret.size()));
}

Result<ContentHash> HashSource(const ByteSource& source) {
  return HashChunks(source, [](XXH3_state_t* state) { XXH3_128bits_reset(state); });
}

Result<ContentHash> HashSource(const ByteSource& source, const HashSecret& secret) {
  return HashChunks(source, [&](XXH3_state_t* state) {
    XXH3_128bits_reset_withSecret(state, secret.data(), secret.size());
  });
}

}  // namespace onnxd
