// onnxd::ConvChannelsLast with a filter for each channel, by loops of our own.
#include "runtime/providers/cpu/depthwise.h"
#include "runtime/providers/cpu/onednn/rows_channels_last.h"

namespace onnxd {

// Requires weights that DepthwiseConv takes.
Result<std::unique_ptr<Kernel>> MakeDepthwiseChannelsLast(const KernelInfo& info) {
  return onednn::MakeRowsChannelsLast<DepthwiseConv>(
      info, [](const KernelInfo& of, const Activation& activation) {
        return DepthwiseConv::Create(of.node.attributes, *of.constant_input(1), activation);
      });
}

}  // namespace onnxd
