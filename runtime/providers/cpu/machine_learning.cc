// ai.onnx.ml Scaler, Normalizer, LinearClassifier, LinearRegressor and ZipMap.
#include <algorithm>
#include <cmath>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/post_transform.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

// Columns of a matrix, or of a vector that is one row.
int64_t Width(const Shape& shape) { return shape.rank() == 0 ? 1 : shape[shape.rank() - 1]; }

int64_t RowCount(const Shape& shape) {
  const int64_t width = Width(shape);
  return width == 0 ? 0 : shape.ElementCount() / width;
}

struct LinearModel {
  std::vector<float> coefficients, intercepts;
  int64_t outputs;
  PostTransform transform;

  // scores[o] = sum(x * coefficients[o]) + intercepts[o]
  template <typename T>
  void Scores(const T* x, int64_t width, float* scores) const {
    for (int64_t o = 0; o < outputs; ++o) {
      float total =
          static_cast<size_t>(o) < intercepts.size() ? intercepts[static_cast<size_t>(o)] : 0;
      const float* row = coefficients.data() + o * width;
      for (int64_t i = 0; i < width; ++i) total += static_cast<float>(x[i]) * row[i];
      scores[o] = total;
    }
  }
};

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
    const int64_t width = Width(shape), count = shape.ElementCount();
    for (const auto* list : {&offset, &scale}) {
      if (list->size() != 1 && static_cast<int64_t>(list->size()) != width) {
        return InvalidArgument(StrCat(Describe(context.node), ": the input has ", width,
                                      " features, offset or scale ", list->size()));
      }
    }
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        for (int64_t i = 0; i < count; ++i) {
          const auto column = static_cast<size_t>(i % width);
          const float shift = offset[offset.size() == 1 ? 0 : column];
          k.output<float>(0)[i] = (static_cast<float>(k.input<T>(0)[i]) - shift) *
                                  scale[scale.size() == 1 ? 0 : column];
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
  ONNXD_ASSIGN_OR_RETURN(model.transform,
                         PostTransformOf(info.node.attributes.String("post_transform", "NONE")));
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_RETURN_IF_ERROR(CheckWidth(context, model));
    const int64_t width = Width(context.InputShape(0)), rows = RowCount(context.InputShape(0));
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        for (int64_t row = 0; row < rows; ++row) {
          float* out = k.output<float>(0) + row * model.outputs;
          model.Scores(k.input<T>(0) + row * width, width, out);
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
  ONNXD_ASSIGN_OR_RETURN(model.transform,
                         PostTransformOf(info.node.attributes.String("post_transform", "NONE")));
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_RETURN_IF_ERROR(CheckWidth(context, model));
    const int64_t width = Width(context.InputShape(0)), rows = RowCount(context.InputShape(0));
    const bool wants_label = context.HasOutput(0), wants_scores = context.HasOutput(1);
    PreparedKernel prepared;
    prepared.scratch_bytes = static_cast<size_t>(labels) * sizeof(float);
    prepared.compute = [=](const KernelContext& k) -> Status {
      Tensor text;
      if (!strings.empty() && wants_label) {
        ONNXD_ASSIGN_OR_RETURN(text, Tensor::Create(DataType::kString, Shape{rows}));
      }
      DispatchNumber(type, [&]<typename T>() {
        for (int64_t row = 0; row < rows; ++row) {
          float* out = wants_scores ? k.output<float>(1) + row * labels : k.scratch<float>();
          model.Scores(k.input<T>(0) + row * width, width, out);
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
