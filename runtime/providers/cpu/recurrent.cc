// LSTM, GRU and RNN in float, and com.microsoft DynamicQuantizeLSTM, whose products are of bytes.
// Source of the equations: ONNX LSTM-14, GRU-14, RNN-14.
//
// Per direction, the input part of all gates of all steps is one matrix product; each step then
// adds the recurrent part and applies the gates.
#include <algorithm>
#include <utility>

#include "runtime/base/checked_math.h"
#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/recurrent_settings.h"
#include "runtime/providers/cpu/double_recurrent.h"
#include "runtime/providers/cpu/packed_matrix.h"
#include "runtime/providers/cpu/parallel_gemm.h"
#include "runtime/providers/cpu/recurrent_bytes.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Cell = RecurrentCell;
using Settings = RecurrentSettings;

void Apply(const GateFunction& function, float* x, int64_t n) {
  const math::Simd& simd = math::CurrentSimd();
  if (function.name == "Sigmoid") return simd.unary(math::Unary::kSigmoid, x, x, n);
  if (function.name == "Tanh") return simd.unary(math::Unary::kTanh, x, x, n);
  if (function.name == "Relu") return simd.unary(math::Unary::kRelu, x, x, n);
  for (int64_t i = 0; i < n; ++i) x[i] = function.One(x[i]);
}

// The operands of one direction during a run.
struct Direction {
  const float* w = nullptr;  // packed [input, gates * hidden]
  const float* r = nullptr;  // packed [hidden, gates * hidden], for GRU [hidden, 2h] then [h, h]
  const ByteGates* byte_w = nullptr;  // in place of w and r
  const ByteGates* byte_r = nullptr;
  const float* bias_w = nullptr;  // [gates * hidden] or null
  const float* bias_r = nullptr;
  const float* peephole = nullptr;  // [3 * hidden], order i, o, f
  const GateFunction* functions = nullptr;
  bool reverse = false;
};

struct Sizes {
  int64_t steps, batch, input, hidden, gates;
};

// Which rows have not reached the end of their sequence.
struct ActiveRows {
  const int32_t* lengths;  // null: all rows have all steps
  int64_t step, steps;

  bool operator()(int64_t row) const { return step < Length(row); }
  int64_t Length(int64_t row) const {
    return lengths == nullptr ? steps : std::clamp<int64_t>(lengths[row], 0, steps);
  }
};

void ClipGates(float* x, int64_t n, float clip) {
  if (clip > 0) math::CurrentSimd().clip(x, x, n, -clip, clip);
}

// Bounds how many bytes of working memory an element of all gates takes: what it is itself, what a
// product in bytes keeps of it, and what rows of one element are rounded up to.
constexpr int64_t kLargestFactor = 256;

// Working memory of one direction.
struct Workspace {
  float* packed_w;  // W and R, where they are not constant
  float* packed_r;
  float* gates;      // [steps, batch, gates * hidden]
  float* recurrent;  // [batch, gates * hidden], at least one row
  float* h;          // [batch, hidden]
  float* c;          // [batch, hidden]
  float* gathered;   // [batch, gates * hidden], of reverse directions
  float* bytes;      // what ByteGates work with
};

int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

// Its parts' sizes in floats.
struct WorkspaceSizes {
  int64_t packed_w, packed_r, gates, recurrent, state, gathered, bytes;

  int64_t Sum() const {
    return Aligned(packed_w) + Aligned(packed_r) + Aligned(gates) + Aligned(recurrent) +
           2 * Aligned(state) + Aligned(gathered) + Aligned(bytes);
  }
  Workspace At(float* cursor) const {
    const auto take = [&](int64_t floats) {
      return std::exchange(cursor, cursor + Aligned(floats));
    };
    Workspace w;
    w.packed_w = take(packed_w);
    w.packed_r = take(packed_r);
    w.gates = take(gates);
    w.recurrent = take(recurrent);
    w.h = take(state);
    w.c = take(state);
    w.gathered = take(gathered);
    w.bytes = take(bytes);
    return w;
  }
};

void LstmRow(const Settings& s, const Direction& d, int64_t n, float* gates, float* h, float* c) {
  float* input = gates;  // i, o, f, c
  float* output = gates + n;
  float* forget = gates + 2 * n;
  float* cell = gates + 3 * n;
  if (d.peephole != nullptr) {
    for (int64_t j = 0; j < n; ++j) {
      input[j] += d.peephole[j] * c[j];
      forget[j] += d.peephole[2 * n + j] * c[j];
    }
  }
  ClipGates(input, n, s.clip);
  ClipGates(forget, n, s.clip);
  ClipGates(cell, n, s.clip);
  Apply(d.functions[0], input, n);
  if (s.input_forget) {
    for (int64_t j = 0; j < n; ++j) forget[j] = 1.0f - input[j];
  } else {
    Apply(d.functions[0], forget, n);
  }
  Apply(d.functions[1], cell, n);
  for (int64_t j = 0; j < n; ++j) c[j] = forget[j] * c[j] + input[j] * cell[j];
  if (d.peephole != nullptr) {
    for (int64_t j = 0; j < n; ++j) output[j] += d.peephole[n + j] * c[j];
  }
  ClipGates(output, n, s.clip);
  Apply(d.functions[0], output, n);
  std::copy_n(c, n, cell);
  ClipGates(cell, n, s.clip);
  Apply(d.functions[2], cell, n);
  for (int64_t j = 0; j < n; ++j) h[j] = output[j] * cell[j];
}

// One step of all rows of an LSTM or RNN: gates += h * R.
void SimpleStep(const Settings& s, const Direction& d, const Sizes& z, float* gates,
                const Workspace& w, const ActiveRows& active, ThreadPool& pool) {
  const int64_t width = z.gates * z.hidden;
  if (d.byte_r != nullptr) {
    d.byte_r->Multiply(w.h, z.batch, gates, true, w.bytes);
  } else {
    math::GemmArguments g{z.batch, width, z.hidden, w.h, z.hidden, d.r, gates, width};
    g.accumulate = true;
    ParallelGemmByColumns(math::CurrentSimd(), g, pool);
  }
  for (int64_t b = 0; b < z.batch; ++b) {
    if (!active(b)) continue;
    float* row = gates + b * width;
    float* h = w.h + b * z.hidden;
    if (s.cell == Cell::kLstm) {
      LstmRow(s, d, z.hidden, row, h, w.c + b * z.hidden);
    } else {
      ClipGates(row, z.hidden, s.clip);
      Apply(d.functions[0], row, z.hidden);
      std::copy_n(row, z.hidden, h);
    }
  }
}

// GRU: z and r first, then the candidate, whose recurrent part depends on r.
void GruStep(const Settings& s, const Direction& d, const Sizes& z, float* gates,
             const Workspace& w, const ActiveRows& active, ThreadPool& pool) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t n = z.hidden, width = 3 * n;
  math::GemmArguments update_reset{z.batch, 2 * n, n, w.h, n, d.r, gates, width};
  update_reset.accumulate = true;
  ParallelGemmByColumns(simd, update_reset, pool);
  const float* candidate_r = d.r + math::PackedBSize(simd, n, 2 * n);
  float* candidate = w.recurrent;            // [batch, hidden]
  float* gated = w.recurrent + z.batch * n;  // r * h, [batch, hidden]
  for (int64_t b = 0; b < z.batch; ++b) {
    float* row = gates + b * width;
    ClipGates(row, 2 * n, s.clip);
    Apply(d.functions[0], row, 2 * n);
    for (int64_t j = 0; j < n; ++j) gated[b * n + j] = row[n + j] * w.h[b * n + j];
  }
  math::GemmArguments product{z.batch, n,           n,         s.linear_before_reset ? w.h : gated,
                              n,       candidate_r, candidate, n};
  if (d.bias_r != nullptr) product.bias = d.bias_r + 2 * n;
  ParallelGemmByColumns(simd, product, pool);
  for (int64_t b = 0; b < z.batch; ++b) {
    if (!active(b)) continue;
    float* row = gates + b * width;
    float* h = w.h + b * n;
    float* hidden = row + 2 * n;
    for (int64_t j = 0; j < n; ++j) {
      const float scale = s.linear_before_reset ? row[n + j] : 1.0f;
      hidden[j] += scale * candidate[b * n + j];
    }
    ClipGates(hidden, n, s.clip);
    Apply(d.functions[1], hidden, n);
    for (int64_t j = 0; j < n; ++j) h[j] = (1.0f - row[j]) * hidden[j] + row[j] * h[j];
  }
}

// The gate biases that can be added to the input product once: all of them, except the candidate's
// recurrent bias of a GRU.
void AddBiases(const Settings& s, const Direction& d, const Sizes& z, const Workspace& w) {
  if (d.bias_w == nullptr) return;
  const int64_t width = z.gates * z.hidden;
  const int64_t shared = s.cell == Cell::kGru ? 2 * z.hidden : width;
  float* bias = w.recurrent;
  for (int64_t j = 0; j < width; ++j) bias[j] = d.bias_w[j] + (j < shared ? d.bias_r[j] : 0.0f);
  const math::Simd& simd = math::CurrentSimd();
  for (int64_t row = 0; row < z.steps * z.batch; ++row) {
    float* gates = w.gates + row * width;
    simd.binary(math::Binary::kAdd, gates, bias, gates, width, 1, 1);
  }
}

class RecurrentKernel : public Kernel {
 public:
  RecurrentKernel(Settings settings, std::vector<PackedMatrix> w, std::vector<PackedMatrix> r)
      : settings_(std::move(settings)), w_(std::move(w)), r_(std::move(r)) {}
  RecurrentKernel(Settings settings, std::vector<ByteGates> w, std::vector<ByteGates> r)
      : settings_(std::move(settings)), byte_w_(std::move(w)), byte_r_(std::move(r)) {}

  bool ReadsInput(size_t i) const override {
    if (in_bytes()) return i != 1 && i != 2 && i < 8;  // scales and zero points are kept
    return !(i == 1 && !w_.empty()) && !(i == 2 && !r_.empty());
  }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Settings& s = settings_;
    const Shape& x = context.InputShape(0);
    Sizes z;
    z.steps = x[s.batch_first ? 1 : 0];
    z.batch = x[s.batch_first ? 0 : 1];
    z.input = x[2];
    z.gates = s.gates;
    z.hidden = context.InputShape(2)[in_bytes() ? 1 : 2];
    const int64_t width = z.gates * z.hidden;
    // X may be empty, and have any number of rows.
    ONNXD_RETURN_IF_ERROR((Shape{z.steps, z.batch, width, kLargestFactor}.Validate()));
    const WorkspaceSizes sizes = SizesOf(z);
    const int64_t transposed_x = s.batch_first ? Aligned(z.steps * z.batch * z.input) : 0;
    const bool at_once = s.directions == 2 && context.threads > 1 && PaysAtOnce(z);
    PreparedKernel prepared;
    prepared.scratch_bytes =
        static_cast<size_t>(transposed_x + (at_once ? 2 : 1) * sizes.Sum()) * sizeof(float);
    prepared.compute = [=, this](const KernelContext& k) {
      const float* input = k.input<float>(0);
      float* const scratch = k.scratch<float>();
      if (s.batch_first) input = StepsFirst(input, z, scratch);
      const auto run = [&](int64_t begin, int64_t end) {
        for (int64_t direction = begin; direction < end; ++direction) {
          float* const own = scratch + transposed_x + (at_once ? direction : 0) * sizes.Sum();
          RunDirection(k, z, direction, input, sizes.At(own));
        }
      };
      if (at_once) {
        k.pool().ParallelFor(s.directions, 1, run);
      } else {
        run(0, s.directions);
      }
      return Status::Ok();
    };
    return prepared;
  }

  static int64_t PackedRSize(const math::Simd& simd, const Sizes& z) {
    if (z.gates == 3) {
      return math::PackedBSize(simd, z.hidden, 2 * z.hidden) +
             math::PackedBSize(simd, z.hidden, z.hidden);
    }
    return math::PackedBSize(simd, z.hidden, z.gates * z.hidden);
  }

  // R of one direction: for a GRU its update and reset gates, then its candidate.
  static void PackR(const math::Simd& simd, const float* r, int64_t gates, int64_t hidden,
                    float* out) {
    if (gates != 3) {
      simd.pack_b(r, hidden, true, hidden, gates * hidden, out);
      return;
    }
    simd.pack_b(r, hidden, true, hidden, 2 * hidden, out);
    simd.pack_b(r + 2 * hidden * hidden, hidden, true, hidden, hidden,
                out + math::PackedBSize(simd, hidden, 2 * hidden));
  }

 private:
  WorkspaceSizes SizesOf(const Sizes& z) const {
    const math::Simd& simd = math::CurrentSimd();
    const int64_t width = z.gates * z.hidden;
    WorkspaceSizes sizes = {};
    if (!in_bytes() && w_.empty()) sizes.packed_w = math::PackedBSize(simd, z.input, width);
    if (!in_bytes() && r_.empty()) sizes.packed_r = PackedRSize(simd, z);
    sizes.gates = z.steps * z.batch * width;
    sizes.recurrent = std::max(width, z.batch * std::max<int64_t>(width, 2 * z.hidden));
    sizes.state = z.batch * z.hidden;
    if (settings_.reverse_first || settings_.directions == 2) sizes.gathered = z.batch * width;
    if (in_bytes()) {
      sizes.bytes =
          std::max(byte_w_[0].ScratchFloats(z.steps * z.batch), byte_r_[0].ScratchFloats(z.batch));
    }
    return sizes;
  }

  // Whether a thread for each direction is better than several for each product: where the steps'
  // products are too small to be cut, and all steps are not.
  static bool PaysAtOnce(const Sizes& z) {
    const int64_t width = z.hidden * (z.gates == 3 ? 2 : z.gates);
    const int64_t product = SaturatingMultiply(z.batch, z.hidden * width);
    const int64_t all = SaturatingMultiply(z.steps * z.batch, (z.input + z.hidden) * width);
    return product < 2 * kRepeatedProductGrain && all >= 2 * kRepeatedProductGrain;
  }

  // [batch, steps, input] as [steps, batch, input].
  static const float* StepsFirst(const float* x, const Sizes& z, float* to) {
    for (int64_t b = 0; b < z.batch; ++b) {
      for (int64_t t = 0; t < z.steps; ++t) {
        std::copy_n(x + (b * z.steps + t) * z.input, z.input, to + (t * z.batch + b) * z.input);
      }
    }
    return to;
  }

  void RunDirection(const KernelContext& k, const Sizes& z, int64_t index, const float* input,
                    const Workspace& w) const {
    const Settings& s = settings_;
    const math::Simd& simd = math::CurrentSimd();
    const int64_t width = z.gates * z.hidden;
    const auto at = static_cast<size_t>(index);
    Direction d;
    d.reverse = s.IsReverse(index);
    d.functions = s.FunctionsOf(index);
    if (in_bytes()) {
      d.byte_w = &byte_w_[at];
      d.byte_r = &byte_r_[at];
    } else {
      PackOrTake(k, z, index, w, d);
    }
    if (const float* bias = k.input<float>(3)) {
      d.bias_w = bias + index * 2 * width;
      d.bias_r = d.bias_w + width;
    }
    if (s.cell == Cell::kLstm && k.input<float>(7) != nullptr) {
      d.peephole = k.input<float>(7) + index * 3 * z.hidden;
    }
    LoadState(k.input<float>(5), z, index, w.h);
    if (s.cell == Cell::kLstm) LoadState(k.input<float>(6), z, index, w.c);
    if (z.steps * z.batch > 0 && in_bytes()) {
      d.byte_w->Multiply(input, z.steps * z.batch, w.gates, false, w.bytes);
    } else if (z.steps * z.batch > 0) {
      ParallelGemm(simd, {z.steps * z.batch, width, z.input, input, z.input, d.w, w.gates, width},
                   k.pool());
    }
    AddBiases(s, d, z, w);
    RunSteps(k, z, index, d, w);
    StoreState(k.output<float>(1), z, index, w.h);
    if (s.cell == Cell::kLstm) StoreState(k.output<float>(2), z, index, w.c);
  }

  bool in_bytes() const { return !byte_w_.empty(); }

  void PackOrTake(const KernelContext& k, const Sizes& z, int64_t index, const Workspace& w,
                  Direction& d) const {
    const math::Simd& simd = math::CurrentSimd();
    const int64_t width = z.gates * z.hidden;
    const auto at = static_cast<size_t>(index);
    if (w_.empty()) {
      simd.pack_b(k.input<float>(1) + index * width * z.input, z.input, true, z.input, width,
                  w.packed_w);
    }
    if (r_.empty()) {
      PackR(simd, k.input<float>(2) + index * width * z.hidden, z.gates, z.hidden, w.packed_r);
    }
    d.w = w_.empty() ? w.packed_w : w_[at].data();
    d.r = r_.empty() ? w.packed_r : r_[at].data();
  }

  // Rows beyond their sequence_lens keep their state and yield zeros in Y.
  void RunSteps(const KernelContext& k, const Sizes& z, int64_t index, const Direction& d,
                const Workspace& w) const {
    const auto* lengths = k.input<int32_t>(4);
    const int64_t width = z.gates * z.hidden;
    for (int64_t step = 0; step < z.steps; ++step) {
      const ActiveRows active{lengths, step, z.steps};
      float* gates = w.gates + step * z.batch * width;
      if (d.reverse) {
        // Each row reads its own sequence backwards.
        for (int64_t b = 0; b < z.batch; ++b) {
          const int64_t from = std::max<int64_t>(0, active.Length(b) - 1 - step);
          std::copy_n(w.gates + (from * z.batch + b) * width, width, w.gathered + b * width);
        }
        gates = w.gathered;
      }
      if (settings_.cell == Cell::kGru) {
        GruStep(settings_, d, z, gates, w, active, k.pool());
      } else {
        SimpleStep(settings_, d, z, gates, w, active, k.pool());
      }
      StoreOutputs(k.output<float>(0), active, z, index, d.reverse, w.h);
    }
  }

  void StoreOutputs(float* y, const ActiveRows& active, const Sizes& z, int64_t index, bool reverse,
                    const float* h) const {
    if (y == nullptr) return;
    for (int64_t b = 0; b < z.batch; ++b) {
      const int64_t position =
          active(b) && reverse ? active.Length(b) - 1 - active.step : active.step;
      const int64_t row = settings_.batch_first
                              ? (b * z.steps + position) * settings_.directions + index
                              : (position * settings_.directions + index) * z.batch + b;
      float* to = y + row * z.hidden;
      if (active(b)) {
        std::copy_n(h + b * z.hidden, z.hidden, to);
      } else {
        std::fill_n(to, z.hidden, 0.0f);
      }
    }
  }

  int64_t StateRow(const Sizes& z, int64_t index, int64_t row) const {
    return settings_.batch_first ? row * settings_.directions + index : index * z.batch + row;
  }

  void LoadState(const float* from, const Sizes& z, int64_t index, float* to) const {
    for (int64_t b = 0; b < z.batch; ++b) {
      if (from == nullptr) {
        std::fill_n(to + b * z.hidden, z.hidden, 0.0f);
      } else {
        std::copy_n(from + StateRow(z, index, b) * z.hidden, z.hidden, to + b * z.hidden);
      }
    }
  }

  void StoreState(float* to, const Sizes& z, int64_t index, const float* from) const {
    if (to == nullptr) return;
    for (int64_t b = 0; b < z.batch; ++b) {
      std::copy_n(from + b * z.hidden, z.hidden, to + StateRow(z, index, b) * z.hidden);
    }
  }

  Settings settings_;
  std::vector<PackedMatrix> w_, r_;  // per direction; empty when the weights are no constants
  std::vector<ByteGates> byte_w_, byte_r_;  // in their place; empty where products are of floats
};

Result<std::vector<PackedMatrix>> PackWeights(const KernelInfo& info, size_t input, int64_t gates,
                                              bool recurrent) {
  std::vector<PackedMatrix> packed;
  const Initializer* weights = info.constant_input(input);
  if (weights == nullptr || weights->shape().rank() != 3) return packed;
  const int64_t width = weights->shape()[1], depth = weights->shape()[2];
  const bool split = recurrent && gates == 3;
  for (int64_t d = 0; d < weights->shape()[0]; ++d) {
    PackedMatrix matrix;
    matrix.simd = &math::CurrentSimd();
    const auto pack = [&](const Tensor& plain) -> Result<Tensor> {
      const float* from = plain.data<float>() + d * width * depth;
      if (!split) {
        ONNXD_ASSIGN_OR_RETURN(PackedMatrix made, PackMatrix(from, true, depth, width));
        return made.elements;
      }
      const Sizes z{0, 0, 0, depth, gates};
      ONNXD_ASSIGN_OR_RETURN(
          Tensor made,
          Tensor::Create(DataType::kFloat, Shape{RecurrentKernel::PackedRSize(*matrix.simd, z)}));
      RecurrentKernel::PackR(*matrix.simd, from, gates, depth, made.mutable_data<float>());
      return made;
    };
    const std::string form =
        StrCat(GemmForm(true), ", direction ", d, split ? ", candidate apart" : "");
    ONNXD_ASSIGN_OR_RETURN(matrix.elements, weights->InForm(form, pack));
    packed.push_back(std::move(matrix));
  }
  return packed;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeRecurrent(const KernelInfo& info) {
  if (info.InputType(0) == DataType::kDouble) return MakeDoubleRecurrent(info);
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType(info.node.op_type, info.InputType(0));
  }
  ONNXD_ASSIGN_OR_RETURN(Settings settings, ReadRecurrentSettings(info.node));
  ONNXD_ASSIGN_OR_RETURN(auto w, PackWeights(info, 1, settings.gates, false));
  ONNXD_ASSIGN_OR_RETURN(auto r, PackWeights(info, 2, settings.gates, true));
  return std::unique_ptr<Kernel>(
      std::make_unique<RecurrentKernel>(std::move(settings), std::move(w), std::move(r)));
}

Result<std::unique_ptr<Kernel>> MakeDynamicQuantizeLstm(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(Settings settings, ReadRecurrentSettings(info.node));
  ONNXD_ASSIGN_OR_RETURN(auto w, ByteGates::Make(info, 1, 8, 9));
  ONNXD_ASSIGN_OR_RETURN(auto r, ByteGates::Make(info, 2, 10, 11));
  const auto directions = static_cast<size_t>(settings.directions);
  if (w.size() != directions || r.size() != directions) {
    return InvalidArgument(StrCat(Describe(info.node), ": weights of ", w.size(), " and ", r.size(),
                                  " directions, expected ", directions));
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<RecurrentKernel>(std::move(settings), std::move(w), std::move(r)));
}

}  // namespace onnxd
