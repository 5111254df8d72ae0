// Strings.
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

Status StringConcat(InferenceContext& context) {
  if (context.shape(0) == nullptr || context.shape(1) == nullptr) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(SymbolicShape out, Broadcast(*context.shape(0), *context.shape(1)));
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

// The substrings, padded to the longest list, and how many there are.
Status StringSplit(InferenceContext& context) {
  context.SetElement(0, DataType::kString);
  context.SetElement(1, DataType::kInt64);
  if (const SymbolicShape* shape = context.shape(0)) {
    SymbolicShape parts = *shape;
    parts.emplace_back();
    context.SetShape(0, std::move(parts));
    context.SetShape(1, *shape);
  }
  return Status::Ok();
}

Status RegexFullMatch(InferenceContext& context) {
  context.SetElement(0, DataType::kBool);
  return SameShapeAsInput(context);
}

Status TfIdfVectorizer(InferenceContext& context) {
  context.SetElement(0, DataType::kFloat);
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  if (shape->size() > 2) return context.Fail("the input must have rank 1 or 2");
  int64_t width = 0;
  for (const int64_t index : context.attributes().Ints("ngram_indexes")) {
    if (index < 0 || index > (int64_t{1} << 30)) return context.Fail("ngram_indexes out of range");
    width = std::max(width, index + 1);
  }
  SymbolicShape out(shape->begin(), shape->empty() ? shape->end() : shape->end() - 1);
  out.push_back(width);
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status WordConvEmbedding(InferenceContext& context) {
  const SymbolicShape* words = context.shape(0);
  const SymbolicShape* w = context.shape(1);
  if (words == nullptr || w == nullptr) return Status::Ok();
  if (words->size() != 2 || w->size() != 4) return context.Fail("Sequence or W has the wrong rank");
  context.SetShape(0, {(*words)[0], (*w)[0]});
  return Status::Ok();
}

Status DynamicTimeWarping(InferenceContext& context) {
  context.SetElement(0, DataType::kInt32);
  context.SetShape(0, {2, Dimension()});
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "RegexFullMatch", RegexFullMatch},
    {"", "StringConcat", StringConcat},
    {"", "StringSplit", StringSplit},
    {"", "TfIdfVectorizer", TfIdfVectorizer},
    {"com.microsoft", "DynamicTimeWarping", DynamicTimeWarping},
    {"com.microsoft", "WordConvEmbedding", WordConvEmbedding},
};

}  // namespace

std::span<const InferenceRule> TextRules() { return kRules; }

}  // namespace onnxd
