#if defined(__x86_64__)
#include <immintrin.h>

#include <type_traits>
#include <utility>

#include "runtime/math/simd.h"

#define ONNXD_SIMD_NAME Avx512Simd
#define ONNXD_SIMD_TEXT "avx512"
#define ONNXD_SIMD_LANES 16
#define ONNXD_SIMD_TILE_ROWS 12

#include "runtime/math/simd_loops.inc"
#endif
