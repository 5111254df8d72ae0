#include "server/net/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kFirstBytes = 64 * 1024;
constexpr size_t kMostInput = size_t{1} << 30;  // zlib counts in 32 bits

// windowBits of zlib.h: 15, and 16 more for gzip.
int WindowBits(Compression compression) { return compression == Compression::kGzip ? 31 : 15; }

uint8_t* Bytes(const char* text) { return reinterpret_cast<uint8_t*>(const_cast<char*>(text)); }

}  // namespace

Result<std::string> Inflate(std::string_view bytes, Compression compression, int64_t limit,
                            const std::function<bool(int64_t)>& admit) {
  if (bytes.size() > kMostInput) return ResourceExhausted("too many compressed bytes");
  z_stream stream{};
  if (inflateInit2(&stream, WindowBits(compression)) != Z_OK) return Unavailable("no memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  stream.next_in = Bytes(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  const auto most = static_cast<size_t>(limit);
  std::string out;
  size_t filled = 0;
  for (;;) {
    if (filled == out.size()) {
      // One byte more than the limit tells a whole result from one that goes on.
      const size_t size = std::min(std::max(kFirstBytes, 2 * out.size()), most + 1);
      if (filled == size) {
        return ResourceExhausted(StrCat("more than the limit of ", limit, " bytes when inflated"));
      }
      if (!admit(static_cast<int64_t>(size - filled))) {
        return Unavailable("too many request bytes are in memory");
      }
      out.resize(size);
    }
    stream.next_out = Bytes(out.data() + filled);
    stream.avail_out = static_cast<uInt>(std::min(out.size() - filled, kMostInput));
    const uInt before = stream.avail_out;
    const int result = inflate(&stream, Z_NO_FLUSH);
    filled += before - stream.avail_out;
    if (result == Z_STREAM_END) break;
    if (result == Z_MEM_ERROR) return Unavailable("no memory");
    if (result != Z_OK || (stream.avail_in == 0 && stream.avail_out > 0)) {
      return InvalidArgument("the compressed bytes are malformed or truncated");
    }
  }
  if (stream.avail_in > 0) return InvalidArgument("bytes follow the compressed ones");
  if (filled > most) {
    return ResourceExhausted(StrCat("more than the limit of ", limit, " bytes when inflated"));
  }
  out.resize(filled);
  return out;
}

std::string Deflate(std::string_view bytes, Compression compression) {
  z_stream stream{};
  std::string out;
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, WindowBits(compression), 8,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return out;
  }
  out.resize(deflateBound(&stream, bytes.size()));
  stream.next_in = Bytes(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = Bytes(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(result == Z_STREAM_END ? stream.total_out : 0);
  deflateEnd(&stream);
  return out;
}

}  // namespace onnxd
