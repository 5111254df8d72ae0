// Products of tiles in local memory by a warpgroup, four warps of 32 lanes, part of every prelude
// (dialect.h): the tensor cores of NVIDIA's compute capability 9.0, which compute while the warps
// go on, and the same by plain loops where a device has none.
//
//   LOCAL_ROOM(room, count)        declares a kernel's only local memory, so many uint4, which
//   begins
//                                  at a multiple of 1024 bytes; its size is LaunchGrid::room_bytes
//   TILE_DESCRIPTOR(address,       a tile (u64), see below
//       beside, below)
//   TILE_FURTHER(descriptor,       the one so many bytes further
//       bytes)
//   multiply(sums, a, b, room)     what WarpgroupMultiply makes: sums += a times b, of the tiles of
//                                  two descriptors, 64 rows of a and COLUMNS columns of b, 16
//                                  elements of 16 bits of each; a comes by rows
//   ROOM_ADDRESS(room)             where it begins (u32), in bytes, for descriptors
//   COPIES_TO_PRODUCTS()           after COPIES_WAIT and before the BARRIER() behind which products
//                                  read what this lane has copied
//   PRODUCTS_BEGIN()               before a batch of products
//   PRODUCTS_END()                 behind it
//   PRODUCTS_WAIT(left)            until all but the last `left` batches of the warpgroup are done:
//                                  what they read may be overwritten, or with 0, sums may be read
//   SUMS_STAY(sums, count)         once sums are set, before their first product, and once they are
//                                  read: nothing that touches them is moved across
//   IN_PAIRS                       of a kernel: its groups are launched two beside each other
//   TILE_MAP(name)                 a kernel's parameter, see GpuDevice::MakeTileMap
//
// Where HAS_WARPGROUPS is defined, and nowhere else:
//   PAIR_RANK()                    0 or 1, of this group in its pair
//   PAIR_BARRIER()                 of all lanes of both groups; like signals between groups it orders
//                                  no memory but what products and copies of tiles use: what does
//                                  would cost a thousand cycles
//   FEWER_REGISTERS()              by all lanes of a warpgroup, in a kernel of three: it gives
//                                  registers up to 24
//   MORE_REGISTERS()               likewise, and takes up to 240
//   SIGNAL_INIT(at, count)         a signal in local memory, 8 bytes at that address, that is given
//                                  once it was signalled so often; SIGNALS_VISIBLE() behind them
//   SIGNAL_EXPECT(at, bytes)       signals, and that so many bytes of copies must come as well
//   SIGNAL_PAIR(at, rank)          signals that group's, at the same place
//   SIGNAL_WAIT(at, phase)         until it was given for the first time (phase 0), the second (1),
//                                  the third (0), ...; a waiter that is two behind is not told
//   FETCH_MAP(map)                 by one lane, early: copies will want it
//   COPY_TILE(to, map, column,     by one lane: the tile that begins there, whose bytes signal
//       row, signal)
//   COPY_TILE_TO_PAIR(...)         likewise, to the same place in both groups, and their signals
//   AWAIT_TURN(own),               between two warpgroups: waits until the other has given it
//   GIVE_TURN(other)
//   WARP_BARRIER()                 of the lanes of a warp
//
// A tile is of rows of 128 bytes, 64 elements, in eights that stand together (1024 bytes); of the
// eight parts of 16 bytes of row r, part p is at place p ^ (r % 8).
//   By rows (of a, or columns of b): an eight has elements 0 to 63 of eight rows; the next eight is
//   `below` bytes further. A product reads 16 elements from `address` on, a multiple of 32.
//   Turned (b alone): a row has 64 columns of one element, and an eight eight elements; the next
//   eight elements are `below` bytes further, the next 64 columns `beside` bytes.
//
// sums is of COLUMNS / 2 of f32: where lane = 32 * w + 4 * g + t, sums[4 * i] and sums[4 * i + 1]
// are columns 8 * i + 2 * t and 8 * i + 2 * t + 1 of row 16 * w + g, the two behind them of row
// 16 * w + g + 8. All lanes of the group come to each call.
//
// Source: NVIDIA, "PTX ISA", wgmma.mma_async, its matrix descriptors and 128-byte swizzling.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/device/dialect.h"

namespace onnxd {

std::string_view WarpgroupUnits(Dialect dialect);

// The text of a function, as `multiply` above, for a kernel's source. Requires f16 or bf16, and 8 to
// 256 columns in steps of 8, of 64 where they are turned.
std::string WarpgroupMultiply(std::string_view function, DataType type, int64_t columns,
                              bool turned);

// Likewise, of turned columns: where HAS_WARPGROUPS is defined, function(sums, words, b) has its left
// side in four words of each lane, as matrix_f16 has (matrix_units.h); else it has it in a tile.
std::string WarpgroupMultiplyWords(std::string_view function, DataType type, int64_t columns);

}  // namespace onnxd
