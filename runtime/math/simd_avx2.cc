#if defined(__x86_64__)
#include <immintrin.h>

#include <type_traits>
#include <utility>

#include "runtime/math/simd.h"

#define ONNXD_SIMD_NAME Avx2Simd
#define ONNXD_SIMD_TEXT "avx2"
#define ONNXD_SIMD_LANES 8
#define ONNXD_SIMD_TILE_ROWS 6

#include "runtime/math/simd_loops.inc"
#endif
