// ai.onnx.ml Scaler, Normalizer, LinearClassifier, LinearRegressor and ZipMap.
#include <algorithm>
#include <cmath>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/packed_matrix.h"
#include "runtime/providers/cpu/post_transform.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kRowsTogether = 64;  // whose scores are computed at once
constexpr int64_t kShortRow = 48;      // as far as a call for each row costs more than the row

// Columns of a matrix, or of a vector that is one row.
int64_t Width(const Shape& shape) { return shape.rank() == 0 ? 1 : shape[shape.rank() - 1]; }

int64_t RowCount(const Shape& shape) {
  const int64_t width = Width(shape);
  return width == 0 ? 0 : shape.ElementCount() / width;
}

struct LinearModel {
  std::vector<float> coefficients, intercepts;  // [outputs, width], [outputs]
  int64_t outputs;
  PostTransform transform;
  PackedMatrix packed;  // the coefficients, where there are more outputs than few_columns takes

  // Before anything else is asked: checks how many there are, fills up the intercepts, and packs.
  Status Finish(const Node& node) {
    const auto count = static_cast<int64_t>(coefficients.size());
    if (outputs < 1 || count == 0 || count % outputs != 0) {
      return InvalidArgument(
          StrCat(Describe(node), ": ", count, " coefficients for ", outputs, " outputs"));
    }
    intercepts.resize(static_cast<size_t>(outputs));
    if (outputs <= math::kMostFewColumns) return Status::Ok();
    ONNXD_ASSIGN_OR_RETURN(packed, PackMatrix(coefficients.data(), true, count / outputs, outputs));
    return Status::Ok();
  }

  // scores[row, o] = sum(x[row] * coefficients[o]) + intercepts[o], of rows of `width` numbers.
  template <typename T>
  void Scores(const T* x, int64_t rows, int64_t width, float* scores) const {
    if constexpr (std::is_same_v<T, float>) return Multiply(x, rows, width, scores);
    for (int64_t row = 0; row < rows; ++row, x += width, scores += outputs) {
      for (int64_t o = 0; o < outputs; ++o) {
        float total = intercepts[static_cast<size_t>(o)];
        const float* weights = coefficients.data() + o * width;
        for (int64_t i = 0; i < width; ++i) total += static_cast<float>(x[i]) * weights[i];
        scores[o] = total;
      }
    }
  }

  void Multiply(const float* x, int64_t rows, int64_t width, float* scores) const {
    math::GemmArguments g{rows, outputs, width, x, width, coefficients.data(), scores, outputs};
    g.bias = intercepts.data();
    if (!packed.defined()) return math::CurrentSimd().few_columns(g);
    g.packed_b = packed.data();
    packed.simd->gemm(g);
  }
};

// Rows of floats, each by its largest number, the sum of sizes, or the root of the sum of squares.
float NormOf(const std::string& norm, const float* x, int64_t width, float* sizes) {
  const math::Simd& simd = math::CurrentSimd();
  if (norm == "MAX") return simd.max(x, width);
  if (norm == "L2") return std::sqrt(simd.sum_of_squares(x, width, 0));
  simd.unary(math::Unary::kAbs, x, sizes, width);
  return simd.sum(sizes, width);
}

// The sizes of short rows, kSideBySide of which wait for each other's numbers no longer.
constexpr int64_t kSideBySide = 8;

template <typename Combine>
void SizesOf(const float* x, int64_t rows, int64_t width, float first, float* sizes,
             const Combine& combine) {
  const auto take = [&]<int64_t count>(int64_t row) {
    float size[count];
    std::fill_n(size, count, first);
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t r = 0; r < count; ++r) size[r] = combine(size[r], x[(row + r) * width + i]);
    }
    std::copy_n(size, count, sizes + row);
  };
  int64_t row = 0;
  for (; row + kSideBySide <= rows; row += kSideBySide) take.template operator()<kSideBySide>(row);
  for (; row < rows; ++row) take.template operator()<1>(row);
}

// Rows of at most kShortRow numbers, each by its size.
void NormalizeShortRows(const std::string& norm, const float* x, int64_t rows, int64_t width,
                        float* y) {
  float sizes[kRowsTogether];
  for (int64_t begin = 0; begin < rows; begin += kRowsTogether) {
    const int64_t count = std::min(kRowsTogether, rows - begin);
    const float* from = x + begin * width;
    float* to = y + begin * width;
    if (norm == "MAX") {
      SizesOf(from, count, width, -INFINITY, sizes,
              [](float size, float v) { return std::max(size, v); });
    } else if (norm == "L1") {
      SizesOf(from, count, width, 0, sizes, [](float size, float v) { return size + std::abs(v); });
    } else {
      SizesOf(from, count, width, 0, sizes, [](float size, float v) { return size + v * v; });
      for (int64_t row = 0; row < count; ++row) sizes[row] = std::sqrt(sizes[row]);
    }
    for (int64_t row = 0; row < count; ++row, from += width, to += width) {
      const float size = sizes[row] == 0.0f ? 1.0f : sizes[row];
      for (int64_t i = 0; i < width; ++i) to[i] = from[i] / size;
    }
  }
}

Status CheckWidth(const PrepareContext& context, const LinearModel& model) {
  const int64_t width = Width(context.InputShape(0));
  if (width * model.outputs == static_cast<int64_t>(model.coefficients.size())) {
    return Status::Ok();
  }
  return InvalidArgument(StrCat(Describe(context.node), ": the input has ", width,
                                " features, the coefficients are for ",
                                static_cast<int64_t>(model.coefficients.size()) / model.outputs));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeScaler(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("Scaler", type);
  const auto offset = info.node.attributes.Floats("offset", {0.0f});
  const auto scale = info.node.attributes.Floats("scale", {1.0f});
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    const int64_t width = Width(shape), rows = RowCount(shape);
    auto shifts = offset, scales = scale;  // of each column
    for (auto* list : {&shifts, &scales}) {
      if (list->size() == 1) list->resize(static_cast<size_t>(width), list->front());
      if (static_cast<int64_t>(list->size()) != width) {
        return InvalidArgument(StrCat(Describe(context.node), ": the input has ", width,
                                      " features, offset or scale ", list->size()));
      }
    }
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        const T* x = k.input<T>(0);
        float* y = k.output<float>(0);
        for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
          for (int64_t i = 0; i < width; ++i) {
            y[i] = (static_cast<float>(x[i]) - shifts.data()[i]) * scales.data()[i];
          }
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeNormalizer(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("Normalizer", type);
  const std::string norm = info.node.attributes.String("norm", "MAX");
  if (norm != "MAX" && norm != "L1" && norm != "L2") {
    return InvalidArgument(StrCat("Normalizer has no norm '", norm, "'"));
  }
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    const int64_t width = Width(context.InputShape(0)), rows = RowCount(context.InputShape(0));
    PreparedKernel prepared;
    if (type == DataType::kFloat && width > 0) {
      prepared.compute = [=](const KernelContext& k) {
        if (width <= kShortRow) {
          NormalizeShortRows(norm, k.input<float>(0), rows, width, k.output<float>(0));
          return Status::Ok();
        }
        for (int64_t row = 0; row < rows; ++row) {
          const float* x = k.input<float>(0) + row * width;
          float* y = k.output<float>(0) + row * width;
          float total = NormOf(norm, x, width, y);
          if (total == 0.0f) total = 1.0f;
          math::CurrentSimd().binary(math::Binary::kDiv, x, &total, y, width, 1, 0);
        }
        return Status::Ok();
      };
      return prepared;
    }
    prepared.compute = [=](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        for (int64_t row = 0; row < rows; ++row) {
          const T* in = k.input<T>(0) + row * width;
          float* out = k.output<float>(0) + row * width;
          float total = norm == "MAX" ? -INFINITY : 0.0f;
          for (int64_t i = 0; i < width; ++i) {
            const auto x = static_cast<float>(in[i]);
            total = norm == "MAX"  ? std::max(total, x)
                    : norm == "L1" ? total + std::abs(x)
                                   : total + x * x;
          }
          if (norm == "L2") total = std::sqrt(total);
          for (int64_t i = 0; i < width; ++i) {
            const auto x = static_cast<float>(in[i]);
            out[i] = total == 0.0f ? x : x / total;
          }
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeLinearRegressor(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("LinearRegressor", type);
  LinearModel model;
  model.coefficients = info.node.attributes.Floats("coefficients");
  model.intercepts = info.node.attributes.Floats("intercepts");
  model.outputs = info.node.attributes.Int("targets", 1);
  if (model.outputs < 1) return InvalidArgument("LinearRegressor: targets must be positive");
  ONNXD_RETURN_IF_ERROR(model.Finish(info.node));
  ONNXD_ASSIGN_OR_RETURN(model.transform,
                         PostTransformOf(info.node.attributes.String("post_transform", "NONE")));
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_RETURN_IF_ERROR(CheckWidth(context, model));
    const int64_t width = Width(context.InputShape(0)), rows = RowCount(context.InputShape(0));
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        float* out = k.output<float>(0);
        model.Scores(k.input<T>(0), rows, width, out);
        if (model.transform == PostTransform::kNone) return;
        for (int64_t row = 0; row < rows; ++row, out += model.outputs) {
          ApplyPostTransform(model.transform, out, model.outputs);
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

// Two labels with one row of coefficients are a binary model: the other score follows from it.
Result<std::unique_ptr<Kernel>> MakeLinearClassifier(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("LinearClassifier", type);
  const auto ints = info.node.attributes.Ints("classlabels_ints");
  const auto strings = info.node.attributes.Strings("classlabels_strings");
  const auto labels = static_cast<int64_t>(std::max(ints.size(), strings.size()));
  LinearModel model;
  model.coefficients = info.node.attributes.Floats("coefficients");
  model.intercepts = info.node.attributes.Floats("intercepts");
  const bool binary = labels == 2 && model.intercepts.size() == 1;
  model.outputs = binary ? 1 : labels;
  ONNXD_RETURN_IF_ERROR(model.Finish(info.node));
  ONNXD_ASSIGN_OR_RETURN(model.transform,
                         PostTransformOf(info.node.attributes.String("post_transform", "NONE")));
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_RETURN_IF_ERROR(CheckWidth(context, model));
    const int64_t width = Width(context.InputShape(0)), rows = RowCount(context.InputShape(0));
    const bool wants_label = context.HasOutput(0), wants_scores = context.HasOutput(1);
    PreparedKernel prepared;
    const int64_t together = std::min(rows, kRowsTogether);
    prepared.scratch_bytes = static_cast<size_t>(together * model.outputs + labels) * sizeof(float);
    prepared.compute = [=](const KernelContext& k) -> Status {
      Tensor text;
      if (!strings.empty() && wants_label) {
        ONNXD_ASSIGN_OR_RETURN(text, Tensor::Create(DataType::kString, Shape{rows}));
      }
      DispatchNumber(type, [&]<typename T>() {
        float* const scores = k.scratch<float>();
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t at = row % kRowsTogether;
          if (at == 0) {
            model.Scores(k.input<T>(0) + row * width, std::min(rows - row, kRowsTogether), width,
                         scores);
          }
          float* out =
              wants_scores ? k.output<float>(1) + row * labels : scores + together * model.outputs;
          std::copy_n(scores + at * model.outputs, model.outputs, out);
          int64_t best;
          if (binary) {
            const float score = out[0];
            best = score > 0.0f ? 1 : 0;
            out[1] = score;
            out[0] = -score;
            ApplyPostTransform(model.transform, out, 2);
            if (model.transform == PostTransform::kLogistic) out[0] = 1.0f - out[1];
          } else {
            best = std::max_element(out, out + labels) - out;
            ApplyPostTransform(model.transform, out, labels);
          }
          if (!wants_label) continue;
          if (strings.empty()) {
            k.output<int64_t>(0)[row] = ints[static_cast<size_t>(best)];
          } else {
            text.mutable_data<std::string>()[row] = strings[static_cast<size_t>(best)];
          }
        }
      });
      if (text.defined()) k.output_value(0) = std::move(text);
      return Status::Ok();
    };
    return prepared;
  });
}

// ZipMap: each row of scores becomes a map from label to score.
Result<std::unique_ptr<Kernel>> MakeZipMap(const KernelInfo& info) {
  const auto ints = info.node.attributes.Ints("classlabels_int64s");
  const auto strings = info.node.attributes.Strings("classlabels_strings");
  if (ints.empty() == strings.empty()) {
    return InvalidArgument("ZipMap needs either classlabels_int64s or classlabels_strings");
  }
  const auto labels = static_cast<int64_t>(std::max(ints.size(), strings.size()));
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    const int64_t width = Width(context.InputShape(0)), rows = RowCount(context.InputShape(0));
    if (width != labels) {
      return InvalidArgument(StrCat(Describe(context.node), ": the input has ", width,
                                    " columns for ", labels, " labels"));
    }
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      auto sequence = std::make_shared<Sequence>();
      for (int64_t row = 0; row < rows; ++row) {
        auto map = std::make_shared<Map>();
        if (strings.empty()) {
          map->keys = ints;
        } else {
          map->keys = strings;
        }
        for (int64_t i = 0; i < width; ++i) {
          map->values.push_back(Tensor::Scalar(k.input<float>(0)[row * width + i]));
        }
        sequence->elements.push_back(Value(std::shared_ptr<const Map>(std::move(map))));
      }
      k.output_value(0) = Value(std::shared_ptr<const Sequence>(std::move(sequence)));
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
