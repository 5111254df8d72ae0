// Source of the equations: ONNX LSTM-14, GRU-14, RNN-14.
#include "runtime/providers/cpu/double_recurrent.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/ops/recurrent_settings.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

struct Sizes {
  int64_t steps, batch, input, hidden;
};

// Offsets in elements, by the attribute `layout`.
struct Layout {
  const RecurrentSettings& s;
  const Sizes& z;

  int64_t X(int64_t b, int64_t step) const {
    return (s.batch_first ? b * z.steps + step : step * z.batch + b) * z.input;
  }
  int64_t Y(int64_t direction, int64_t b, int64_t step) const {
    const int64_t row = s.batch_first ? (b * z.steps + step) * s.directions + direction
                                      : (step * s.directions + direction) * z.batch + b;
    return row * z.hidden;
  }
  int64_t State(int64_t direction, int64_t b) const {
    return (s.batch_first ? b * s.directions + direction : direction * z.batch + b) * z.hidden;
  }
  Shape YShape() const {
    if (s.batch_first) return Shape{z.batch, z.steps, s.directions, z.hidden};
    return Shape{z.steps, s.directions, z.batch, z.hidden};
  }
  Shape StateShape() const {
    if (s.batch_first) return Shape{z.batch, s.directions, z.hidden};
    return Shape{s.directions, z.batch, z.hidden};
  }
};

// One direction's weights: [gates * hidden, input], [gates * hidden, hidden], and per gate and
// hidden unit the biases, null for none; peepholes [3 * hidden], order i, o, f.
struct Weights {
  const double *w, *r, *bias_w, *bias_r, *peephole;
};

class Run {
 public:
  Run(const RecurrentSettings& s, const Sizes& z, const Weights& weights, int64_t direction)
      : s_(s),
        z_(z),
        weights_(weights),
        f_(s.FunctionsOf(direction)),
        gates_(static_cast<size_t>(s.gates * z.hidden)),
        next_(static_cast<size_t>(z.hidden)) {}

  // Advances h, and c of an LSTM, by one step.
  void Step(const double* x, double* h, double* c) {
    for (int64_t row = 0; row < s_.gates * z_.hidden; ++row) {
      gates_[static_cast<size_t>(row)] = InputPart(x, row);
    }
    switch (s_.cell) {
      case RecurrentCell::kLstm:
        return Lstm(h, c);
      case RecurrentCell::kGru:
        return Gru(h);
      case RecurrentCell::kRnn:
        return Rnn(h);
    }
  }

 private:
  double& Gate(int64_t gate, int64_t j) {
    return gates_[static_cast<size_t>(gate * z_.hidden + j)];
  }

  double InputPart(const double* x, int64_t row) const {
    const double* w = weights_.w + row * z_.input;
    double sum = weights_.bias_w == nullptr ? 0 : weights_.bias_w[row];
    for (int64_t i = 0; i < z_.input; ++i) sum += w[i] * x[i];
    return sum;
  }

  double RecurrentPart(const double* h, int64_t row) const {
    const double* r = weights_.r + row * z_.hidden;
    double sum = weights_.bias_r == nullptr ? 0 : weights_.bias_r[row];
    for (int64_t i = 0; i < z_.hidden; ++i) sum += r[i] * h[i];
    return sum;
  }

  double Clipped(double x) const {
    const double clip = s_.clip;
    return clip > 0 ? std::clamp(x, -clip, clip) : x;
  }

  double Peephole(int64_t which, int64_t j, double cell) const {
    return weights_.peephole == nullptr ? 0 : weights_.peephole[which * z_.hidden + j] * cell;
  }

  void Rnn(double* h) {
    for (int64_t j = 0; j < z_.hidden; ++j) {
      next_[static_cast<size_t>(j)] = f_[0].One(Clipped(Gate(0, j) + RecurrentPart(h, j)));
    }
    std::copy(next_.begin(), next_.end(), h);
  }

  // Gates i, o, f, c.
  void Lstm(double* h, double* c) {
    const int64_t n = z_.hidden;
    for (int64_t row = 0; row < 4 * n; ++row) {
      gates_[static_cast<size_t>(row)] += RecurrentPart(h, row);
    }
    for (int64_t j = 0; j < n; ++j) {
      const double input = f_[0].One(Clipped(Gate(0, j) + Peephole(0, j, c[j])));
      const double forget =
          s_.input_forget ? 1 - input : f_[0].One(Clipped(Gate(2, j) + Peephole(2, j, c[j])));
      c[j] = forget * c[j] + input * f_[1].One(Clipped(Gate(3, j)));
      const double output = f_[0].One(Clipped(Gate(1, j) + Peephole(1, j, c[j])));
      h[j] = output * f_[2].One(Clipped(c[j]));
    }
  }

  // Gates z, r, h.
  void Gru(double* h) {
    const int64_t n = z_.hidden;
    for (int64_t row = 0; row < 2 * n; ++row) {
      double& gate = gates_[static_cast<size_t>(row)];
      gate = f_[0].One(Clipped(gate + RecurrentPart(h, row)));
    }
    std::vector<double> reset(h, h + n);
    for (int64_t j = 0; j < n; ++j) reset[static_cast<size_t>(j)] *= Gate(1, j);
    for (int64_t j = 0; j < n; ++j) {
      const int64_t row = 2 * n + j;
      const double candidate = s_.linear_before_reset ? Gate(1, j) * RecurrentPart(h, row)
                                                      : RecurrentPart(reset.data(), row);
      const double hidden = f_[1].One(Clipped(Gate(2, j) + candidate));
      next_[static_cast<size_t>(j)] = (1 - Gate(0, j)) * hidden + Gate(0, j) * h[j];
    }
    std::copy(next_.begin(), next_.end(), h);
  }

  const RecurrentSettings& s_;
  const Sizes& z_;
  const Weights& weights_;
  const GateFunction* f_;
  std::vector<double> gates_, next_;
};

Status CheckCount(const Node& node, std::span<const Value> inputs, size_t i, int64_t count) {
  const Tensor* tensor = TensorAt(inputs, i);
  if (tensor == nullptr || tensor->ElementCount() == count) return Status::Ok();
  return InvalidArgument(StrCat(Describe(node), ": input ", i, " has ", tensor->ElementCount(),
                                " elements, expected ", count));
}

Result<Sizes> SizesOf(const Node& node, const RecurrentSettings& s, std::span<const Value> inputs) {
  const Shape& x = inputs[0].tensor().shape();
  const Shape& r = inputs[2].tensor().shape();
  if (x.rank() != 3 || r.rank() != 3) {
    return InvalidArgument(StrCat(Describe(node), ": X and R must have rank 3"));
  }
  const Sizes z{x[s.batch_first ? 1 : 0], x[s.batch_first ? 0 : 1], x[2], r[2]};
  const int64_t rows = s.directions * s.gates * z.hidden, state = s.directions * z.batch * z.hidden;
  ONNXD_RETURN_IF_ERROR(CheckCount(node, inputs, 1, rows * z.input));
  ONNXD_RETURN_IF_ERROR(CheckCount(node, inputs, 2, rows * z.hidden));
  ONNXD_RETURN_IF_ERROR(CheckCount(node, inputs, 3, 2 * rows));
  ONNXD_RETURN_IF_ERROR(CheckCount(node, inputs, 4, z.batch));
  ONNXD_RETURN_IF_ERROR(CheckCount(node, inputs, 5, state));
  if (s.cell == RecurrentCell::kLstm) {
    ONNXD_RETURN_IF_ERROR(CheckCount(node, inputs, 6, state));
    ONNXD_RETURN_IF_ERROR(CheckCount(node, inputs, 7, s.directions * 3 * z.hidden));
  }
  return z;
}

Result<Tensor> InitialState(std::span<const Value> inputs, size_t i, const Shape& shape) {
  ONNXD_ASSIGN_OR_RETURN(Tensor state, Tensor::Create(DataType::kDouble, shape));
  const Tensor* given = TensorAt(inputs, i);
  double* to = state.mutable_data<double>();
  if (given == nullptr) {
    std::fill_n(to, shape.ElementCount(), 0.0);
  } else {
    std::copy_n(given->data<double>(), shape.ElementCount(), to);
  }
  return state;
}

Result<Values> Recurrent(const RecurrentSettings& s, const Node& node,
                         std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const Sizes z, SizesOf(node, s, inputs));
  const Layout layout{s, z};
  const bool lstm = s.cell == RecurrentCell::kLstm;
  ONNXD_ASSIGN_OR_RETURN(Tensor h, InitialState(inputs, 5, layout.StateShape()));
  ONNXD_ASSIGN_OR_RETURN(Tensor c, InitialState(inputs, lstm ? 6 : 99, layout.StateShape()));
  ONNXD_ASSIGN_OR_RETURN(Tensor y, Tensor::Create(DataType::kDouble, layout.YShape()));
  std::fill_n(y.mutable_data<double>(), y.ElementCount(), 0.0);
  const auto elements = [&](size_t i) -> const double* {
    const Tensor* tensor = TensorAt(inputs, i);
    return tensor == nullptr ? nullptr : tensor->data<double>();
  };
  const Tensor* lengths = TensorAt(inputs, 4);
  const int64_t rows = s.gates * z.hidden;
  for (int64_t d = 0; d < s.directions; ++d) {
    Weights weights{elements(1) + d * rows * z.input, elements(2) + d * rows * z.hidden,
                    elements(3), nullptr, lstm ? elements(7) : nullptr};
    if (weights.bias_w != nullptr) weights.bias_r = (weights.bias_w += d * 2 * rows) + rows;
    if (weights.peephole != nullptr) weights.peephole += d * 3 * z.hidden;
    Run run(s, z, weights, d);
    for (int64_t b = 0; b < z.batch; ++b) {
      const int64_t length = lengths == nullptr
                                 ? z.steps
                                 : std::clamp<int64_t>(lengths->data<int32_t>()[b], 0, z.steps);
      double* state = h.mutable_data<double>() + layout.State(d, b);
      for (int64_t step = 0; step < length; ++step) {
        const int64_t at = s.IsReverse(d) ? length - 1 - step : step;
        run.Step(elements(0) + layout.X(b, at), state,
                 c.mutable_data<double>() + layout.State(d, b));
        std::copy_n(state, z.hidden, y.mutable_data<double>() + layout.Y(d, b, at));
      }
    }
  }
  Values results{std::move(y), std::move(h)};
  if (lstm) results.emplace_back(std::move(c));
  results.resize(node.outputs.size());
  return results;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeDoubleRecurrent(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(RecurrentSettings settings, ReadRecurrentSettings(info.node));
  return MakeEagerKernel(
      [s = std::move(settings)](const Node& node, std::span<const Value> inputs) {
        return Recurrent(s, node, inputs);
      });
}

}  // namespace onnxd
