// ai.onnx.preview.training Adagrad-1, Adam-1 and Momentum-1: one step of an optimizer.
#include <cmath>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

// One element's step: x and the states are replaced.
class Step {
 public:
  Step(const Node& node, double rate, int64_t count)
      : op_(node.op_type), rate_(rate), count_(static_cast<double>(count)) {
    const Attributes& a = node.attributes;
    norm_ = a.Float("norm_coefficient", 0);
    norm_post_ = a.Float("norm_coefficient_post", 0);
    alpha_ = a.Float("alpha", op_ == "Adam" ? 0.9f : 0.0f);
    beta_ = a.Float("beta", op_ == "Adam" ? 0.999f : 0.0f);
    epsilon_ = a.Float("epsilon", op_ == "Adam" ? 0.0f : 1e-6f);
    decay_ = a.Float("decay_factor", 0);
    nesterov_ = a.String("mode", "standard") == "nesterov";
  }

  void Apply(double& x, double gradient, double& first, double& second) const {
    const double g = norm_ * x + gradient;
    if (op_ == "Adagrad") {
      first += g * g;
      x -= rate_ / (1 + count_ * decay_) * g / (std::sqrt(first) + epsilon_);
    } else if (op_ == "Adam") {
      first = alpha_ * first + (1 - alpha_) * g;
      second = beta_ * second + (1 - beta_) * g * g;
      double rate = rate_;
      if (count_ > 0)
        rate *= std::sqrt(1 - std::pow(beta_, count_)) / (1 - std::pow(alpha_, count_));
      x = (1 - norm_post_) * (x - rate * first / (std::sqrt(second) + epsilon_));
    } else {
      first = alpha_ * first + (count_ > 0 ? beta_ : 1.0) * g;
      x -= rate_ * (nesterov_ ? g + alpha_ * first : first);
    }
  }

 private:
  std::string op_;
  double rate_, count_, norm_, norm_post_, alpha_, beta_, epsilon_, decay_;
  bool nesterov_;
};

Result<Values> Optimize(const Node& node, std::span<const Value> inputs) {
  const size_t states = node.op_type == "Adam" ? 2 : 1;
  const size_t tensors = (inputs.size() - 2) / (states + 2);
  const auto rate = ElementsAs<double>(inputs[0].tensor());
  const auto count = ElementsAs<int64_t>(inputs[1].tensor());
  if (rate.size() != 1 || count.size() != 1) {
    return InvalidArgument(StrCat(Describe(node), ": R and T must be one number each"));
  }
  const Step step(node, rate[0], count[0]);
  Values out(tensors * (states + 1));
  for (size_t i = 0; i < tensors; ++i) {
    std::vector<std::vector<double>> operands;  // X, G, states
    const Tensor& first = inputs[2 + i].tensor();
    for (size_t part = 0; part < states + 2; ++part) {
      const Tensor& tensor = inputs[2 + part * tensors + i].tensor();
      if (!(tensor.shape() == first.shape())) {
        return InvalidArgument(
            StrCat(Describe(node), ": the operands of tensor ", i, " differ in shape"));
      }
      operands.push_back(ElementsAs<double>(tensor));
    }
    double unused = 0;
    for (size_t e = 0; e < operands[0].size(); ++e) {
      step.Apply(operands[0][e], operands[1][e], operands[2][e],
                 states > 1 ? operands[3][e] : unused);
    }
    for (size_t part = 0; part <= states; ++part) {
      const auto& elements = operands[part == 0 ? 0 : part + 1];
      ONNXD_ASSIGN_OR_RETURN(Tensor result, TensorFrom(first.type(), first.shape(), elements));
      out[part * tensors + i] = std::move(result);
    }
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeOptimizerStep(const KernelInfo&) {
  return MakeEagerKernel(Optimize);
}

}  // namespace onnxd
