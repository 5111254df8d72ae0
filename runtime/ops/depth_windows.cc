#include "runtime/ops/depth_windows.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {

Result<DepthWindows> DepthWindowsOf(const Node& node) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const Attributes& a = node.attributes;
  const std::vector<int64_t> pads = a.Ints("pads");
  DepthWindows windows{a.Int("depth", 0),
                       a.Int("kernel", 0),
                       a.Int("stride", 1),
                       a.Int("dilation", 1),
                       0,
                       0,
                       a.Int("channels_last", 0) != 0};
  if (pads.size() == 2) windows.pad_begin = pads[0], windows.pad_end = pads[1];
  const auto within = [&](int64_t least, std::initializer_list<int64_t> values) {
    return std::all_of(values.begin(), values.end(),
                       [&](int64_t value) { return value >= least && value <= kMost; });
  };
  const bool sound =
      pads.size() == 2 && within(0, {windows.pad_begin, windows.pad_end}) &&
      within(1, {windows.depth, windows.kernel, windows.stride, windows.dilation}) &&
      windows.dilation * (windows.kernel - 1) < windows.depth + windows.pad_begin + windows.pad_end;
  if (sound) return windows;
  return InvalidArgument(StrCat(Describe(node), ": no window fits a depth of ", windows.depth));
}

}  // namespace onnxd
