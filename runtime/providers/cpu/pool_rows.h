// MaxPool and AveragePool of floats, channels first, by whole rows.
#pragma once

#include <algorithm>
#include <array>

#include "runtime/kernel/kernel.h"

namespace onnxd {

// The taps of one output position along an axis: those inside of the input are first, first +
// dilation, ...; `padded` is the extent that AveragePool counts with count_include_pad.
struct Taps {
  int64_t first, count, padded;
};

// Computed where they are needed: a table would be as long as the output is.
struct AxisWindow {
  int64_t outputs = 1, extent = 1, kernel = 1, stride = 1, dilation = 1, pad_begin = 0, pad_end = 0;

  // How many steps of `dilation` lead over `distance`.
  int64_t Steps(int64_t distance) const {
    if (distance <= 0) return 0;
    return dilation == 1 ? distance : (distance + dilation - 1) / dilation;
  }

  Taps At(int64_t output) const {
    const int64_t start = output * stride - pad_begin;
    const int64_t before = Steps(-start);
    const int64_t inside = std::min(kernel, Steps(extent - start));
    // A window that ceil_mode lets hang over the padding counts only up to the padding's end.
    return {start + before * dilation, std::max<int64_t>(0, inside - before),
            std::min(kernel, Steps(extent + pad_end - start))};
  }
};

struct PoolPlan {
  int64_t planes, in_plane, out_plane;
  std::array<AxisWindow, 3> axes;
  bool include_pad;
};

// The largest of each window, or their means. Y and X are output 0 and input 0.
PreparedKernel PreparePoolByRows(const PoolPlan& plan, bool average, int threads);

}  // namespace onnxd
