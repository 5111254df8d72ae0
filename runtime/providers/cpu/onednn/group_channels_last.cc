// onnxd::ConvChannelsLast in groups of few channels, by loops of our own.
#include "runtime/providers/cpu/group_conv.h"
#include "runtime/providers/cpu/onednn/own_products.h"
#include "runtime/providers/cpu/onednn/rows_channels_last.h"

namespace onnxd {

// Measured with AVX2 alone.
bool TakesGroups(const Attributes& attributes, const Shape& weights) {
  return onednn::OwnProductsAreFaster() && GroupConv::Takes(attributes, weights);
}

// Requires weights that TakesGroups takes.
Result<std::unique_ptr<Kernel>> MakeGroupChannelsLast(const KernelInfo& info) {
  return onednn::MakeRowsChannelsLast<GroupConv>(
      info, [](const KernelInfo& of, const Activation& activation) {
        return GroupConv::Create(*of.constant_input(1), activation);
      });
}

}  // namespace onnxd
