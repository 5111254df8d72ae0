// The attributes of LSTM, GRU and RNN, as kernels read them.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

enum class RecurrentCell { kLstm, kGru, kRnn };

// One of the activations that ONNX LSTM-14 lists.
struct GateFunction {
  std::string name;
  float alpha = 0, beta = 0;

  template <typename T>
  T One(T x) const {
    const T a = alpha, b = beta;
    if (name == "Sigmoid") return 1 / (1 + std::exp(-x));
    if (name == "Tanh") return std::tanh(x);
    if (name == "Relu") return std::max(x, T{0});
    if (name == "Affine") return a * x + b;
    if (name == "LeakyRelu") return x < 0 ? a * x : x;
    if (name == "ThresholdedRelu") return x > a ? x : 0;
    if (name == "ScaledTanh") return a * std::tanh(b * x);
    if (name == "HardSigmoid") return std::min(std::max(a * x + b, T{0}), T{1});
    if (name == "Elu") return x < 0 ? a * std::expm1(x) : x;
    if (name == "Softsign") return x / (1 + std::abs(x));
    return std::log1p(std::exp(x));  // Softplus
  }
};

struct RecurrentSettings {
  RecurrentCell cell;
  int64_t gates, directions;
  bool reverse_first, batch_first, linear_before_reset, input_forget;
  float clip;
  std::vector<GateFunction> functions;  // per direction: f, g (, h)

  bool IsReverse(int64_t direction) const { return reverse_first || direction == 1; }
  const GateFunction* FunctionsOf(int64_t direction) const {
    const auto count = functions.size() / static_cast<size_t>(directions);
    return functions.data() + static_cast<size_t>(direction) * count;
  }
};

// kUnimplemented for an unknown activation, kInvalidArgument for a wrong number of them.
Result<RecurrentSettings> ReadRecurrentSettings(const Node& node);

}  // namespace onnxd
