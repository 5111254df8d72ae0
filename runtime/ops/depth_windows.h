// onnxd::DepthWindows: of volumes whose planes are images, for each place of a window along their
// depth one image of all planes that it sees. [batch * depth, channels, height, width] becomes
// [batch * outputs, kernel * channels, height, width], planes outside of the volume being zeros;
// with channels_last 1 the channels are the last axis of both.
#pragma once

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

struct DepthWindows {
  int64_t depth, kernel, stride, dilation, pad_begin, pad_end;
  bool channels_last;

  int64_t outputs() const {
    return (depth + pad_begin + pad_end - dilation * (kernel - 1) - 1) / stride + 1;
  }
};

// kInvalidArgument where no window fits.
Result<DepthWindows> DepthWindowsOf(const Node& node);

}  // namespace onnxd
