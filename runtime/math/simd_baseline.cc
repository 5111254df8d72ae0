#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <type_traits>
#include <utility>

#include "runtime/math/simd.h"

#define ONNXD_SIMD_NAME BaselineSimd
#define ONNXD_SIMD_TEXT "baseline"
#define ONNXD_SIMD_LANES 4
#define ONNXD_SIMD_TILE_ROWS 4

#include "runtime/math/simd_loops.inc"
