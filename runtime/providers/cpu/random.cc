// RandomNormal, RandomNormalLike, RandomUniform, RandomUniformLike (1, 22), Bernoulli (15, 22) and
// Multinomial (7, 22). A seed gives the same numbers on every run of a node; other generators than
// ours give other numbers. Without a seed each run draws on.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <numbers>
#include <random>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;
using Generator = std::mt19937_64;

// Where the numbers of one node's runs start.
class Seeds {
 public:
  explicit Seeds(const Node& node) : fixed_(node.attributes.Has("seed")) {
    state_ = fixed_ ? std::bit_cast<uint32_t>(node.attributes.Float("seed", 0))
                    : (uint64_t{std::random_device()()} << 32 | std::random_device()());
  }
  Generator Next() const { return Generator(fixed_ ? state_.load() : state_.fetch_add(1)); }

 private:
  bool fixed_;
  mutable std::atomic<uint64_t> state_;
};

// In [0, 1), 53 random bits.
double Uniform(Generator& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

// Box and Muller, 1958.
double Normal(Generator& random) {
  const double radius = std::sqrt(-2 * std::log(1 - Uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * Uniform(random));
}

Result<Values> Draw(const Node& node, const Shape& shape, DataType type, Generator random) {
  const bool normal = node.op_type.starts_with("RandomNormal");
  const double mean = node.attributes.Float("mean", 0), scale = node.attributes.Float("scale", 1);
  const double low = node.attributes.Float("low", 0), high = node.attributes.Float("high", 1);
  ONNXD_RETURN_IF_ERROR(shape.Validate());
  ONNXD_ASSIGN_OR_RETURN(Tensor space, Tensor::Create(DataType::kDouble, shape));  // may be refused
  double* out = space.mutable_data<double>();
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    out[i] = normal ? mean + scale * Normal(random) : low + (high - low) * Uniform(random);
  }
  return OneValue(Converted(space, type));
}

Result<Values> Bernoulli(const Tensor& x, DataType type, Generator random) {
  std::vector<double> out = ElementsAs<double>(x);
  for (double& p : out) p = Uniform(random) < p ? 1.0 : 0.0;
  return OneValue(TensorFrom(type, x.shape(), out));
}

// Classes drawn from unnormalised logarithms of probabilities.
Result<Values> Multinomial(const Node& node, const Tensor& x, DataType type, Generator random) {
  if (x.shape().rank() != 2) return InvalidArgument(StrCat(Describe(node), ": rank is not 2"));
  const int64_t rows = x.shape()[0], classes = x.shape()[1];
  const int64_t samples = node.attributes.Int("sample_size", 1);
  if (classes < 1 || samples < 0 || samples > (int64_t{1} << 30)) {
    return InvalidArgument(StrCat(Describe(node), ": classes or sample_size are out of range"));
  }
  const std::vector<double> logs = ElementsAs<double>(x);
  std::vector<int64_t> out;
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = logs.begin() + row * classes;
    const double largest = *std::max_element(begin, begin + classes);
    std::vector<double> sums;
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sums.push_back(sum += std::exp(begin[c] - largest));
    for (int64_t i = 0; i < samples; ++i) {
      const auto at = std::upper_bound(sums.begin(), sums.end() - 1, Uniform(random) * sum);
      out.push_back(at - sums.begin());
    }
  }
  return OneValue(TensorFrom(type, Shape{rows, samples}, out));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeRandom(const KernelInfo& info) {
  const DataType type = info.OutputType(0);
  const std::string& op = info.node.op_type;
  if (!IsConvertible(type)) return DeclineType(op, type);
  auto seeds = std::make_shared<const Seeds>(info.node);
  if (op == "Bernoulli") {
    return MakeEagerKernel([=](const Node&, std::span<const Value> inputs) {
      return Bernoulli(inputs[0].tensor(), type, seeds->Next());
    });
  }
  if (op == "Multinomial") {
    return MakeEagerKernel([=](const Node& node, std::span<const Value> inputs) {
      return Multinomial(node, inputs[0].tensor(), type, seeds->Next());
    });
  }
  return MakeEagerKernel([=](const Node& node, std::span<const Value> inputs) {
    const Shape shape =
        inputs.empty() ? Shape(node.attributes.Ints("shape")) : inputs[0].tensor().shape();
    return Draw(node, shape, type, seeds->Next());
  });
}

}  // namespace onnxd
