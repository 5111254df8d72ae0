// Products of small matrices by a warp of 32 lanes, part of every prelude (dialect.h): NVIDIA's
// tensor cores, and the same through local memory where a device has none, so that kernels written
// for them run anywhere.
//
//   EXCHANGE(lanes)                  declares what the emulation needs, at the top of a kernel
//   LOCAL_POINTER, UNROLL            before pointers to LOCAL arrays; before loops
//   UNROLL_BY_8                      before loops whose loads should be on their way together
//   BOUNDS(lanes, groups)            after KERNEL: a group's lanes, and how many groups should have
//                                    room on a multiprocessor at once
//   matrix_f16(c, a, b, EXCHANGED)   c += a times b, of f16 with sums of f32
//   matrix_bf16                      the same of bf16
//   matrix_tf32                      the same of f32 rounded by f32_to_tf32
//   matrix_i8_i8, matrix_i8_u8,      the same of bytes, c of i32 that wrap around; a's type comes
//   matrix_u8_i8, matrix_u8_u8       first
//
//   quad_max(x, EXCHANGED)           of the f32 of lanes 4 * g to 4 * g + 3, NaN if one is
//   quad_sum(x, EXCHANGED)           their sum
//   IF_MATRICES(condition)           before a statement that calls these, of a condition that is the
//                                    same for the warp: tensor cores leave it out, the emulation
//                                    does not, so that it must do no harm
//
//   COPY_16(to, from, there)         16 bytes (uint4) of GLOBAL to LOCAL memory, zeros if not `there`,
//                                    which may still be on their way afterwards
//   COPIES_END()                     ends a batch of copies, maybe of none
//   COPIES_WAIT(left)                until all but the last `left` batches of this lane are there
//   LOAD_MATRICES(words, of_lane,    four matrices of 8 rows of 16 bytes, which are 4 words or 8
//                 row)               elements of 16 bits: `row`, an expression of a lane `of_lane` of
//                                    the warp, is where row of_lane % 8 of matrix of_lane / 8 is (a
//                                    LOCAL const uint4*); words[i] is word t of row g of matrix i
//   LOAD_MATRICES_TURNED(...)        words[i] is elements g of rows 2 * t and 2 * t + 1 instead
//
// a is 16 rows, b is 8 columns, each of 8 words (u32), which hold 32 bytes, 16 f16 or bf16, or 8
// f32, the first in the lowest bits; c is 16 by 8. Where lane = 4 * g + t:
//   a[0] word t of row g; a[1] of row g + 8; a[2] and a[3] word t + 4 of these
//   b[0] word t of column g; b[1] word t + 4
//   c[0], c[1] columns 2 * t and 2 * t + 1 of row g; c[2], c[3] of row g + 8
// As NVIDIA, "PTX ISA", matrix fragments of mma.m16n8k32, mma.m16n8k16 and mma.m16n8k8, cp.async and
// ldmatrix. All lanes of the group come to each call but those of COPY_16.
#pragma once

#include <string_view>

#include "runtime/device/dialect.h"

namespace onnxd {

std::string_view MatrixUnits(Dialect dialect);

}  // namespace onnxd
