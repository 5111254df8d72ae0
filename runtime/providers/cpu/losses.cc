// NegativeLogLikelihoodLoss-12 to -22 and SoftmaxCrossEntropyLoss-12 to -13.
#include <algorithm>
#include <cmath>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

enum class Reduction { kNone, kMean, kSum };

struct LossSettings {
  Reduction reduction = Reduction::kMean;
  bool ignores = false;
  int64_t ignore_index = 0;
  bool softmax = false;  // the input is scores, not logarithms of probabilities
  DataType type, label_type;
};

struct LossSizes {
  int64_t batch, classes, positions;
};

// Reads labels of either index type.
class Labels {
 public:
  Labels(const KernelContext& k, DataType type)
      : wide_(type == DataType::kInt64 ? k.input<int64_t>(1) : nullptr),
        narrow_(type == DataType::kInt64 ? nullptr : k.input<int32_t>(1)) {}
  int64_t operator[](int64_t i) const { return wide_ != nullptr ? wide_[i] : narrow_[i]; }

 private:
  const int64_t* wide_;
  const int32_t* narrow_;
};

// out = logarithm of the softmax over classes, [batch, classes, positions].
template <typename T>
void LogSoftmax(const T* in, const LossSizes& z, T* out) {
  for (int64_t b = 0; b < z.batch; ++b) {
    for (int64_t p = 0; p < z.positions; ++p) {
      const int64_t base = b * z.classes * z.positions + p;
      T largest = in[base];
      for (int64_t c = 1; c < z.classes; ++c) {
        largest = std::max(largest, in[base + c * z.positions]);
      }
      double sum = 0;
      for (int64_t c = 0; c < z.classes; ++c) {
        sum += std::exp(static_cast<double>(in[base + c * z.positions] - largest));
      }
      const T shift = largest + static_cast<T>(std::log(sum));
      for (int64_t c = 0; c < z.classes; ++c) {
        out[base + c * z.positions] = in[base + c * z.positions] - shift;
      }
    }
  }
}

template <typename T>
Status Loss(const LossSettings& s, const LossSizes& z, const KernelContext& k, const T* log_p,
            std::string_view name) {
  const Labels labels(k, s.label_type);
  const T* weights = k.input<T>(2);
  T* out = k.output<T>(0);
  double sum = 0, weight_sum = 0;
  for (int64_t b = 0; b < z.batch; ++b) {
    for (int64_t p = 0; p < z.positions; ++p) {
      const int64_t label = labels[b * z.positions + p];
      T value = 0;
      if (!(s.ignores && label == s.ignore_index)) {
        if (label < 0 || label >= z.classes) {
          return InvalidArgument(
              StrCat(name, ": label ", label, " is not within ", z.classes, " classes"));
        }
        const T weight = weights != nullptr ? weights[label] : T(1);
        value = -log_p[(b * z.classes + label) * z.positions + p] * weight;
        weight_sum += static_cast<double>(weight);
      }
      sum += static_cast<double>(value);
      if (s.reduction == Reduction::kNone) out[b * z.positions + p] = value;
    }
  }
  if (s.reduction == Reduction::kSum) out[0] = static_cast<T>(sum);
  if (s.reduction == Reduction::kMean) out[0] = static_cast<T>(sum / weight_sum);
  return Status::Ok();
}

Result<LossSizes> SizesOf(const PrepareContext& context) {
  const Shape& in = context.InputShape(0);
  const Shape& labels = context.InputShape(1);
  bool fits = in.rank() >= 2 && labels.rank() == in.rank() - 1 && labels[0] == in[0];
  for (int i = 2; fits && i < in.rank(); ++i) fits = labels[i - 1] == in[i];
  if (fits && context.HasInput(2)) fits = context.InputShape(2) == Shape{in[1]};
  if (!fits) {
    return InvalidArgument(StrCat(Describe(context.node), ": input of shape ", in.ToString(),
                                  " and labels of shape ", labels.ToString(),
                                  " (or the weights) do not match"));
  }
  return LossSizes{in[0], in[1], in.ElementCount(2, in.rank())};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeLoss(const KernelInfo& info) {
  LossSettings s;
  s.type = info.InputType(0);
  s.label_type = info.InputType(1);
  s.softmax = info.node.op_type == "SoftmaxCrossEntropyLoss";
  if (!IsFloatOrDouble(s.type)) return DeclineType(info.node.op_type, s.type);
  const std::string reduction = info.node.attributes.String("reduction", "mean");
  if (reduction == "none") s.reduction = Reduction::kNone;
  if (reduction == "sum") s.reduction = Reduction::kSum;
  s.ignores = info.node.attributes.Has("ignore_index");
  s.ignore_index = info.node.attributes.Int("ignore_index", 0);
  return MakeKernel([s](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const LossSizes z, SizesOf(context));
    PreparedKernel prepared;
    const bool wants_log = context.HasOutput(1);
    const int64_t count = context.InputShape(0).ElementCount();
    if (s.softmax && !wants_log) {
      prepared.scratch_bytes = static_cast<size_t>(count * DataTypeBits(s.type) / 8);
    }
    const std::string name = Describe(context.node);
    prepared.compute = [=](const KernelContext& k) {
      Status status;
      DispatchFloat(s.type, [&]<typename T>() {
        const T* log_p = k.input<T>(0);
        if (s.softmax) {
          T* own = wants_log ? k.output<T>(1) : k.scratch<T>();
          LogSoftmax(log_p, z, own);
          log_p = own;
        }
        status = Loss<T>(s, z, k, log_p, name);
      });
      return status;
    };
    return prepared;
  });
}

}  // namespace onnxd
