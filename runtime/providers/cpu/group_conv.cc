#include "runtime/providers/cpu/group_conv.h"

#include "runtime/math/simd.h"

namespace onnxd {
namespace {

constexpr int64_t kWindow = 3;
// Of a group: where more are summed up products of matrices are as fast.
constexpr int64_t kMostChannels = 128;

int64_t Lanes() { return math::CurrentSimd().gemm_width / 2; }

// [filters, group, 3, 3] as [filters / lanes, 3, group, 3, lanes].
Result<Tensor> ByRegisters(const Tensor& plain, int64_t lanes) {
  const int64_t filters = plain.shape()[0], group = plain.shape()[1];
  ONNXD_ASSIGN_OR_RETURN(
      Tensor packed,
      Tensor::Create(DataType::kFloat, Shape{filters / lanes, kWindow, group, kWindow, lanes}));
  const float* from = plain.data<float>();
  float* const to = packed.mutable_data<float>();
  for (int64_t filter = 0; filter < filters; ++filter) {
    for (int64_t channel = 0; channel < group; ++channel) {
      for (int64_t row = 0; row < kWindow; ++row) {
        for (int64_t column = 0; column < kWindow; ++column) {
          const int64_t at = (filter / lanes * kWindow + row) * group + channel;
          to[(at * kWindow + column) * lanes + filter % lanes] = *from++;
        }
      }
    }
  }
  return packed;
}

}  // namespace

bool GroupConv::Takes(const Attributes& attributes, const Shape& weights) {
  if (weights.rank() != 4 || weights[2] != kWindow || weights[3] != kWindow) return false;
  const int64_t groups = attributes.Int("group", 1), filters = weights[0], group = weights[1];
  if (groups < 2 || group > kMostChannels || filters % groups != 0 || filters / groups != group) {
    return false;
  }
  const std::vector<int64_t> strides = attributes.Ints("strides");
  return math::TakesGroup(group, Lanes()) && filters % Lanes() == 0 &&
         (AreAll(strides, 1) || AreAll(strides, 2)) && AreAll(attributes.Ints("dilations"), 1);
}

Result<GroupConv> GroupConv::Create(const Initializer& weights, const Activation& activation) {
  GroupConv made;
  made.channels_ = weights.shape()[0], made.group_ = weights.shape()[1];
  made.bounds_ = BoundsOf(activation);
  ONNXD_ASSIGN_OR_RETURN(made.weights_, weights.InForm("groups", [](const Tensor& plain) {
    return ByRegisters(plain, Lanes());
  }));
  return made;
}

void GroupConv::ComputeRows(const float* image, const std::array<int64_t, 2>& size,
                            const Window& window, const float* bias, int64_t begin, int64_t end,
                            float* out) const {
  const int64_t columns = window.output[1];
  math::CurrentSimd().group_conv({image, size[0], size[1], channels_, group_,
                                  weights_.data<float>(), window.strides[0], window.pads_begin[0],
                                  window.pads_begin[1], bias, bounds_.low, bounds_.high, out, begin,
                                  end - begin, columns});
}

}  // namespace onnxd
