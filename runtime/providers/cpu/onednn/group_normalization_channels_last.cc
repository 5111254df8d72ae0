// onnxd::GroupNormalizationChannelsLast: GroupNormalization-21 over [batch, height, width,
// channels]. With as many groups as channels it is InstanceNormalization.
#include <algorithm>
#include <cmath>

#include "runtime/base/checked_math.h"
#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kBlockBytes = 32 << 10;  // of pixels, which stay in the first-level cache
constexpr int64_t kLeastPixels = 16;       // of a block, whose moments are kept

struct Plan {
  int64_t images, pixels, channels, groups;
  int64_t block, blocks;  // pixels of a block, blocks of an image
  float epsilon;
};

// Of `count` pixels: [channels] each. Blocks are joined in double. Source: Chan, Golub and LeVeque,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
class Moments {
 public:
  explicit Moments(int64_t channels)
      : mean_(static_cast<size_t>(channels)), squares_(static_cast<size_t>(channels)) {}

  void Join(int64_t count, const float* mean, const float* squares) {
    const auto before = static_cast<double>(count_), added = static_cast<double>(count);
    count_ += count;
    const auto all = static_cast<double>(count_);
    for (size_t c = 0; c < mean_.size(); ++c) {
      const double delta = static_cast<double>(mean[c]) - mean_[c];
      mean_[c] += delta * added / all;
      squares_[c] += static_cast<double>(squares[c]) + delta * delta * before * added / all;
    }
  }

  // Mean and variance of some neighbouring channels.
  std::pair<double, double> Of(int64_t first, int64_t count) const {
    double mean = 0, squares = 0;
    for (int64_t c = first; c < first + count; ++c) mean += mean_[static_cast<size_t>(c)];
    mean /= static_cast<double>(count);
    for (int64_t c = first; c < first + count; ++c) {
      const double delta = mean_[static_cast<size_t>(c)] - mean;
      squares += squares_[static_cast<size_t>(c)] + delta * delta * static_cast<double>(count_);
    }
    return {mean, squares / (static_cast<double>(count_) * static_cast<double>(count))};
  }

 private:
  int64_t count_ = 0;
  std::vector<double> mean_, squares_;
};

int64_t PixelsOf(const Plan& plan, int64_t block) {
  return std::min(plan.block, plan.pixels - block * plan.block);
}

// Into `moments`, [blocks, 2, channels]: means, and sums of squares around them.
void FindMoments(const Plan& plan, const float* image, int64_t block, float* moments) {
  const math::Simd& simd = math::CurrentSimd();
  const float* x = image + block * plan.block * plan.channels;
  float* mean = moments + 2 * block * plan.channels;
  const int64_t count = PixelsOf(plan, block);
  simd.sum_rows(x, count, plan.channels, mean);
  simd.affine(mean, mean, plan.channels, 1.0f / static_cast<float>(count), 0.0f);
  simd.sum_square_rows(x, count, plan.channels, mean, mean + plan.channels);
}

// What each channel is normalized by, from `to` on: means, then scales.
void JoinMoments(const Plan& plan, const float* moments, const float* scale, float* to) {
  Moments joined(plan.channels);
  for (int64_t block = 0; block < plan.blocks; ++block, moments += 2 * plan.channels) {
    joined.Join(PixelsOf(plan, block), moments, moments + plan.channels);
  }
  const int64_t width = plan.channels / plan.groups;
  for (int64_t c = 0; c < plan.channels; ++c) {
    if (c % width == 0) {
      const auto [mean, variance] = joined.Of(c, width);
      to[c] = static_cast<float>(mean);
      to[plan.channels + c] =
          static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(plan.epsilon)));
    } else {
      to[c] = to[c - 1];
      to[plan.channels + c] = to[plan.channels + c - 1];
    }
  }
  for (int64_t c = 0; c < plan.channels; ++c) to[plan.channels + c] *= scale[c];
}

void Compute(const Plan& plan, const KernelContext& k) {
  const int64_t image_floats = plan.pixels * plan.channels;
  auto* moments = k.scratch<float>();
  float* parameters = moments + plan.blocks * 2 * plan.channels;
  for (int64_t i = 0; i < plan.images; ++i) {
    const float* image = k.input<float>(0) + i * image_floats;
    float* y = k.output<float>(0) + i * image_floats;
    const auto each_block = [&](const auto& body) {
      k.pool().ParallelFor(plan.blocks, 2, [&](int64_t first, int64_t last) {
        for (int64_t block = first; block < last; ++block) body(block);
      });
    };
    each_block([&](int64_t block) { FindMoments(plan, image, block, moments); });
    JoinMoments(plan, moments, k.input<float>(1), parameters);
    each_block([&](int64_t block) {
      const int64_t at = block * plan.block * plan.channels;
      math::CurrentSimd().normalize_rows(image + at, PixelsOf(plan, block), plan.channels,
                                         parameters, parameters + plan.channels, k.input<float>(2),
                                         y + at);
    });
  }
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGroupNormalizationChannelsLast(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat || info.InputType(1) != DataType::kFloat ||
      info.InputType(2) != DataType::kFloat) {
    return DeclineType(info.node.op_type, info.InputType(0));
  }
  return MakeKernel([](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& x = context.InputShape(0);
    const Attributes& attributes = context.node.attributes;
    Plan plan{};
    plan.groups = attributes.Int("num_groups", 0);
    plan.epsilon = attributes.Float("epsilon", 1e-5f);
    if (x.rank() != 4 || plan.groups < 1 || x[3] % plan.groups != 0 ||
        context.InputShape(1).ElementCount() != x[3] ||
        context.InputShape(2).ElementCount() != x[3]) {
      return InvalidArgument(StrCat(Describe(context.node), ": ", plan.groups,
                                    " groups for input of shape ", x.ToString(), ", scale ",
                                    context.InputShape(1).ToString(), ", bias ",
                                    context.InputShape(2).ToString()));
    }
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    if (x.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    plan.images = x[0], plan.pixels = x[1] * x[2], plan.channels = x[3];
    plan.block = std::max(kLeastPixels,
                          kBlockBytes / SaturatingMultiply(plan.channels, int64_t{sizeof(float)}));
    plan.blocks = (plan.pixels + plan.block - 1) / plan.block;
    // At most an eighth of X for moments, and two rows.
    prepared.scratch_bytes =
        static_cast<size_t>((plan.blocks + 1) * 2 * plan.channels) * sizeof(float);
    prepared.compute = [plan](const KernelContext& k) {
      Compute(plan, k);
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
