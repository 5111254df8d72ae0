#if defined(__x86_64__)
#include <immintrin.h>

#include <type_traits>
#include <utility>

#include "runtime/math/simd.h"

#define ONNXD_SIMD_NAME AmxSimd
#define ONNXD_SIMD_TEXT "amx"
#define ONNXD_SIMD_LANES 16
#define ONNXD_SIMD_TILE_ROWS 12
#define ONNXD_SIMD_HAS_TILES

#include "runtime/math/simd_loops.inc"
#endif
