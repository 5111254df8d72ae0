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
  if (const Initializer* values = attributes.TensorValue("values_tensor")) {
    context.SetElement(0, values->type());
  }
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

Status CategoryMapper(InferenceContext& context) {
  const ValueType& x = context.input(0);
  if (x.is_tensor()) {
    context.SetElement(0, x.element == DataType::kString ? DataType::kInt64 : DataType::kString);
  }
  return SameShapeAsInput(context);
}

Status CastMap(InferenceContext& context) {
  const std::string to = context.attributes().String("cast_to", "TO_FLOAT");
  context.SetElement(0, to == "TO_STRING"  ? DataType::kString
                        : to == "TO_INT64" ? DataType::kInt64
                                           : DataType::kFloat);
  const bool sparse = context.attributes().String("map_form", "DENSE") == "SPARSE";
  const int64_t width = context.attributes().Int("max_map", 1);
  context.SetShape(0, {1, sparse && width >= 0 ? Dimension(width) : Dimension()});
  return Status::Ok();
}

Status DictVectorizer(InferenceContext& context) {
  const ValueType& map = context.input(0);
  if (map.inner != nullptr && map.inner->is_tensor()) context.SetElement(0, map.inner->element);
  const size_t width = context.attributes().Strings("string_vocabulary").size() +
                       context.attributes().Ints("int64_vocabulary").size();
  context.SetShape(0, {1, static_cast<int64_t>(width)});
  return Status::Ok();
}

Status FeatureVectorizer(InferenceContext& context) {
  context.SetElement(0, DataType::kFloat);
  const auto widths = context.attributes().Ints("inputdimensions");
  Dimension rows = 1, width = 0;
  for (size_t i = 0; i < context.input_count(); ++i) {
    const SymbolicShape* shape = context.shape(i);
    if (shape == nullptr) return Status::Ok();
    if (i == 0) rows = shape->size() > 1 ? (*shape)[0] : Dimension(1);
    Dimension own = i < widths.size() ? Dimension(widths[i]) : Dimension(1);
    for (size_t axis = shape->size() > 1 ? 1 : 0; i >= widths.size() && axis < shape->size();
         ++axis) {
      own = own.known() && (*shape)[axis].known() ? Dimension(own.value * (*shape)[axis].value)
                                                  : Dimension();
    }
    width = width.known() && own.known() ? Dimension(width.value + own.value) : Dimension();
  }
  context.SetShape(0, {rows, width});
  return Status::Ok();
}

Status OneHotEncoder(InferenceContext& context) {
  context.SetElement(0, DataType::kFloat);
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  const size_t width = context.attributes().Strings("cats_strings").size() +
                       context.attributes().Ints("cats_int64s").size();
  SymbolicShape out = *shape;
  out.push_back(static_cast<int64_t>(width));
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

// How many columns of scores there are depends on the kind of model.
Status SvmClassifier(InferenceContext& context) {
  const bool strings = context.attributes().Has("classlabels_strings");
  context.SetElement(0, strings ? DataType::kString : DataType::kInt64);
  if (const SymbolicShape* shape = context.shape(0)) {
    context.SetShape(0, {Rows(*shape)});
    context.SetShape(1, {Rows(*shape), Dimension()});
  }
  return Status::Ok();
}

Status SvmRegressor(InferenceContext& context) {
  if (const SymbolicShape* shape = context.shape(0)) context.SetShape(0, {Rows(*shape), 1});
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"ai.onnx.ml", "ArrayFeatureExtractor", ArrayFeatureExtractor},
    {"ai.onnx.ml", "Binarizer", SameShapeAsInput},
    {"ai.onnx.ml", "Imputer", SameShapeAsInput},
    {"ai.onnx.ml", "CastMap", CastMap},
    {"ai.onnx.ml", "CategoryMapper", CategoryMapper},
    {"ai.onnx.ml", "DictVectorizer", DictVectorizer},
    {"ai.onnx.ml", "FeatureVectorizer", FeatureVectorizer},
    {"ai.onnx.ml", "LabelEncoder", LabelEncoder},
    {"ai.onnx.ml", "LinearClassifier", Classifier},
    {"ai.onnx.ml", "LinearRegressor", Regressor},
    {"ai.onnx.ml", "Normalizer", Scaler},
    {"ai.onnx.ml", "OneHotEncoder", OneHotEncoder},
    {"ai.onnx.ml", "SVMClassifier", SvmClassifier},
    {"ai.onnx.ml", "SVMRegressor", SvmRegressor},
    {"ai.onnx.ml", "Scaler", Scaler},
    {"ai.onnx.ml", "TreeEnsemble", Regressor},
    {"ai.onnx.ml", "TreeEnsembleClassifier", Classifier},
    {"ai.onnx.ml", "TreeEnsembleRegressor", Regressor},
    {"ai.onnx.ml", "ZipMap", ZipMap},
};

}  // namespace

std::span<const InferenceRule> MachineLearningRules() { return kRules; }

}  // namespace onnxd
