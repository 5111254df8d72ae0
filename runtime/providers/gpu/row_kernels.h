// What kernels share that compute rows of numbers by a group of lanes each, or by one lane.
#pragma once

#include <string_view>

namespace onnxd {

inline constexpr int kRowLanes = 256;

// ROW_LANES, 256 unless it is defined before; GROUP_REDUCE(partial, COMBINE): leaves COMBINE over
// all lanes' entries of a LOCAL array of ROW_LANES in its first, which all lanes may read until the
// next ROWS_BARRIER of all. With 32, lanes of axis 1 have rows and arrays of their own.
inline constexpr std::string_view kRowFunctions = R"(
#ifndef ROW_LANES
#define ROW_LANES 256
#endif
#ifdef EXCHANGE_WITH
#define COMBINE_LANES(of_lane, lanes, COMBINE) \
  for (i32 apart = (lanes) / 2; apart > 0; apart /= 2) { \
    const auto other = EXCHANGE_WITH(of_lane, apart); \
    of_lane = COMBINE(of_lane, other); \
  }
#endif
#if defined(EXCHANGE_WITH) && ROW_LANES == 32
#define ROWS_BARRIER() __syncwarp()
#define GROUP_REDUCE(partial, COMBINE) \
  { \
    auto of_lane = partial[LANE(0)]; \
    COMBINE_LANES(of_lane, 32, COMBINE) \
    __syncwarp(); \
    if (LANE(0) == 0) partial[0] = of_lane; \
    __syncwarp(); \
  }
#elif defined(EXCHANGE_WITH)
// Whole warps by exchange, then the first one what they came to.
#define GROUP_REDUCE(partial, COMBINE) \
  { \
    auto of_lane = partial[LANE(0)]; \
    COMBINE_LANES(of_lane, 32, COMBINE) \
    BARRIER(); \
    if (LANE(0) % 32 == 0) partial[LANE(0) / 32] = of_lane; \
    BARRIER(); \
    if (LANE(0) < 32) { \
      of_lane = partial[LANE(0) % (ROW_LANES / 32)]; \
      COMBINE_LANES(of_lane, ROW_LANES / 32, COMBINE) \
      if (LANE(0) == 0) partial[0] = of_lane; \
    } \
    BARRIER(); \
  }
#else
#define GROUP_REDUCE(partial, COMBINE) \
  BARRIER(); \
  for (i32 width = ROW_LANES / 2; width > 0; width /= 2) { \
    if (LANE(0) < width) { \
      partial[LANE(0)] = COMBINE(partial[LANE(0)], partial[LANE(0) + width]); \
    } \
    BARRIER(); \
  }
#endif
#ifndef ROWS_BARRIER
#define ROWS_BARRIER() BARRIER()
#endif
#define PLUS(a, b) ((a) + (b))
#define LARGER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
)";

}  // namespace onnxd
