// Source of what the instructions do: Intel's Software Developer's Manual, volume 2, LDTILECFG,
// TILELOADD, TDPBUSD, TDPBSSD, TDPBF16PS.
#include "tests/support/emulated_tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "runtime/math/simd.h"

namespace onnxd::math {
namespace {

constexpr int kTiles = 8, kMostRows = 16, kRowBytes = 64;

struct Tile {
  int rows = 0, row_bytes = 0;
  alignas(64) std::byte bytes[kMostRows][kRowBytes] = {};
};

// Those of a thread, as an instruction finds them: not configured is a fault.
class Unit {
 public:
  void Configure(const void* shapes) {
    const auto* bytes = static_cast<const uint8_t*>(shapes);
    if (bytes[0] != 1) std::abort();  // the palette
    for (int i = 0; i < kTiles; ++i) {
      Tile tile;
      uint16_t row_bytes;
      std::memcpy(&row_bytes, bytes + 16 + 2 * i, sizeof(row_bytes));
      tile.row_bytes = row_bytes;
      tile.rows = bytes[48 + i];
      if (tile.rows > kMostRows || tile.row_bytes > kRowBytes) std::abort();
      tiles_[i] = tile;
    }
    configured_ = true;
  }

  void Release() { configured_ = false; }

  void Zero(int to) { std::memset(Of(to).bytes, 0, sizeof(Tile::bytes)); }

  void Load(int to, const void* from, int64_t stride) {
    Zero(to);
    Tile& tile = Of(to);
    for (int row = 0; row < tile.rows; ++row) {
      std::memcpy(tile.bytes[row], static_cast<const std::byte*>(from) + row * stride,
                  static_cast<size_t>(tile.row_bytes));
    }
  }

  void Store(int from, void* to, int64_t stride) {
    const Tile& tile = Of(from);
    for (int row = 0; row < tile.rows; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * stride, tile.bytes[row],
                  static_cast<size_t>(tile.row_bytes));
    }
  }

  // sums += a * b, where a register of 32 bits holds what one step of the product takes.
  template <typename Sum, typename Step>
  void Multiply(int sums, int a, int b, const Step& step) {
    Tile& c = Of(sums);
    const Tile &left = Of(a), &right = Of(b);
    const int depth = left.row_bytes / 4;
    if (c.rows != left.rows || c.row_bytes != right.row_bytes || depth != right.rows) std::abort();
    for (int row = 0; row < c.rows; ++row) {
      Sum line[kRowBytes / 4];
      std::memcpy(line, c.bytes[row], sizeof(line));
      for (int at = 0; at < depth; ++at) {
        uint32_t one, all[kRowBytes / 4];
        std::memcpy(&one, left.bytes[row] + 4 * at, sizeof(one));
        std::memcpy(all, right.bytes[at], sizeof(all));
        for (int column = 0; column < kRowBytes / 4; ++column) step(line[column], one, all[column]);
      }
      std::memcpy(c.bytes[row], line, static_cast<size_t>(c.row_bytes));
    }
  }

 private:
  Tile& Of(int i) {
    if (!configured_) std::abort();
    return tiles_[i];
  }

  Tile tiles_[kTiles];
  bool configured_ = false;
};

Unit& UnitOfThread() {
  thread_local Unit unit;
  return unit;
}

// Numbers that are not normal count as 0.
inline float OfBits(uint32_t bits) {
  if ((bits & 0x7f800000) == 0) bits = 0;
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

// Of bytes like `First` and signed ones.
template <typename First>
void AddBytes(int32_t& sum, uint32_t a, uint32_t b) {
  uint32_t added = static_cast<uint32_t>(sum);
  for (int shift = 0; shift < 32; shift += 8) {
    added += static_cast<uint32_t>(static_cast<First>(a >> shift)) *
             static_cast<uint32_t>(static_cast<int8_t>(b >> shift));
  }
  sum = static_cast<int32_t>(added);
}

inline void AddBfloat16(float& sum, uint32_t a, uint32_t b) {
  sum += OfBits(a << 16) * OfBits(b << 16);
  sum += OfBits(a & 0xffff0000) * OfBits(b & 0xffff0000);
}

}  // namespace
}  // namespace onnxd::math

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbusd
#undef _tile_dpbssd
#undef _tile_dpbf16ps
#define _tile_loadconfig(shapes) UnitOfThread().Configure(shapes)
#define _tile_release() UnitOfThread().Release()
#define _tile_zero(to) UnitOfThread().Zero(to)
#define _tile_loadd(to, from, stride) UnitOfThread().Load(to, from, stride)
#define _tile_stream_loadd(to, from, stride) UnitOfThread().Load(to, from, stride)
#define _tile_stored(from, to, stride) UnitOfThread().Store(from, to, stride)
#define _tile_dpbusd(sums, a, b) \
  UnitOfThread().Multiply<int32_t>(sums, a, b, math::AddBytes<uint8_t>)
#define _tile_dpbssd(sums, a, b) \
  UnitOfThread().Multiply<int32_t>(sums, a, b, math::AddBytes<int8_t>)
#define _tile_dpbf16ps(sums, a, b) UnitOfThread().Multiply<float>(sums, a, b, math::AddBfloat16)

#define ONNXD_SIMD_NAME EmulatedTilesSimd
#define ONNXD_SIMD_TEXT "emulated_tiles"
#define ONNXD_SIMD_LANES 16
#define ONNXD_SIMD_TILE_ROWS 12
#define ONNXD_SIMD_HAS_TILES

#include "runtime/math/simd_loops.inc"

namespace onnxd::math {

bool SetEmulatedTiles() {
  const Simd& before = CurrentSimd();
  const bool has_the_rest = __builtin_cpu_supports("avx512vbmi") && SetSimd("avx512vnni");
  SetSimd(has_the_rest ? EmulatedTilesSimd() : before);
  return has_the_rest;
}

}  // namespace onnxd::math
#else
namespace onnxd::math {

bool SetEmulatedTiles() { return false; }

}  // namespace onnxd::math
#endif
