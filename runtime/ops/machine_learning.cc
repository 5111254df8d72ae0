// The ai.onnx.ml domain: scalers, linear models and tree ensembles.
#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

// Rows of the input: its first dimension, 1 for a vector that is one row.
Dimension Rows(const SymbolicShape& shape) { return shape.size() >= 2 ? shape[0] : Dimension(1); }

Status Classifier(InferenceContext& context) {
  const Attributes& attributes = context.attributes();
  const auto strings = attributes.Strings("classlabels_strings").size();
  const auto ints = attributes.Ints("classlabels_int64s").size() +
                    attributes.Ints("classlabels_ints").size();  // as LinearClassifier spells it
  if ((strings == 0) == (ints == 0)) {
    return context.Fail("it needs either integer or string class labels");
  }
  context.SetElement(0, strings > 0 ? DataType::kString : DataType::kInt64);
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  context.SetShape(0, {Rows(*shape)});
  context.SetShape(1, {Rows(*shape), static_cast<int64_t>(strings + ints)});
  return Status::Ok();
}

Status Regressor(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  const std::string_view targets =
      context.node().op_type == "LinearRegressor" ? "targets" : "n_targets";
  const int64_t count = context.attributes().Int(targets, 1);
  if (count < 1) return context.Fail(StrCat(targets, " must be positive"));
  context.SetShape(0, {Rows(*shape), count});
  return Status::Ok();
}

Status Scaler(InferenceContext& context) {
  context.SetElement(0, DataType::kFloat);
  return SameShapeAsInput(context);
}

Status ZipMap(InferenceContext& context) {
  const bool strings = context.attributes().Has("classlabels_strings");
  context.SetType(0, ValueType::SequenceOf(
                         ValueType::MapOf(strings ? DataType::kString : DataType::kInt64,
                                          ValueType::TensorOf(DataType::kFloat, SymbolicShape{}))));
  return Status::Ok();
}

Status LabelEncoder(InferenceContext& context) {
  const Attributes& attributes = context.attributes();
  if (attributes.Has("values_int64s")) context.SetElement(0, DataType::kInt64);
  if (attributes.Has("values_floats")) context.SetElement(0, DataType::kFloat);
  if (attributes.Has("values_strings")) context.SetElement(0, DataType::kString);
  if (attributes.Has("classes_strings")) {
    const bool from_string =
        context.input(0).is_tensor() && context.input(0).element == DataType::kString;
    context.SetElement(0, from_string ? DataType::kInt64 : DataType::kString);
  }
  return SameShapeAsInput(context);
}

Status ArrayFeatureExtractor(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  const SymbolicShape* indices = context.shape(1);
  if (shape == nullptr || indices == nullptr || shape->empty()) return Status::Ok();
  Dimension count = 1;
  for (const Dimension& dimension : *indices) {
    count =
        count.known() && dimension.known() ? Dimension(count.value * dimension.value) : Dimension();
  }
  SymbolicShape out(shape->begin(), shape->end() - 1);
  if (out.empty()) out.push_back(1);
  out.push_back(count);
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"ai.onnx.ml", "ArrayFeatureExtractor", ArrayFeatureExtractor},
    {"ai.onnx.ml", "Binarizer", SameShapeAsInput},
    {"ai.onnx.ml", "Imputer", SameShapeAsInput},
    {"ai.onnx.ml", "LabelEncoder", LabelEncoder},
    {"ai.onnx.ml", "LinearClassifier", Classifier},
    {"ai.onnx.ml", "LinearRegressor", Regressor},
    {"ai.onnx.ml", "Normalizer", Scaler},
    {"ai.onnx.ml", "Scaler", Scaler},
    {"ai.onnx.ml", "TreeEnsembleClassifier", Classifier},
    {"ai.onnx.ml", "TreeEnsembleRegressor", Regressor},
    {"ai.onnx.ml", "ZipMap", ZipMap},
};

}  // namespace

std::span<const InferenceRule> MachineLearningRules() { return kRules; }

}  // namespace onnxd
