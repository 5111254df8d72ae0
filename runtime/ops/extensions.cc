// The operators of onnxruntime-extensions, domain ai.onnx.contrib, and our tokenizer of pairs.
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

// A row of tokens for each pair of texts.
Status RowsOfPairs(InferenceContext& context) {
  const SymbolicShape* texts = context.shape(0);
  if (texts == nullptr) return Status::Ok();
  SymbolicShape rows = *texts;
  rows.emplace_back();
  for (size_t i = 0; i < 3; ++i) context.SetShape(i, rows);
  return Status::Ok();
}

// A row of tokens for each text, and for each token where it begins and ends.
Status RowsOfTokens(InferenceContext& context) {
  const SymbolicShape* texts = context.shape(0);
  if (texts == nullptr) return Status::Ok();
  SymbolicShape rows = *texts;
  rows.emplace_back();
  context.SetShape(0, rows);
  context.SetShape(1, rows);
  rows.emplace_back(2);
  context.SetShape(2, std::move(rows));
  return Status::Ok();
}

Status BertTokenizer(InferenceContext& context) {
  for (size_t i = 0; i < 3; ++i) context.SetShape(i, {Dimension()});
  context.SetShape(3, {Dimension(), 2});
  return Status::Ok();
}

Status HfBertTokenizer(InferenceContext& context) {
  for (size_t i = 0; i < 3; ++i) context.SetShape(i, {1, Dimension()});
  return Status::Ok();
}

Status OneText(InferenceContext& context) {
  context.SetShape(0, {1});
  return Status::Ok();
}

Status BpeDecoder(InferenceContext& context) {
  const SymbolicShape* ids = context.shape(0);
  if (ids == nullptr) return Status::Ok();
  if (ids->empty()) return context.Fail("ids must be [..., tokens]");
  SymbolicShape texts(ids->begin(), ids->end() - 1);
  if (texts.empty()) texts.emplace_back(1);
  context.SetShape(0, std::move(texts));
  return Status::Ok();
}

Status JsonTokenDecoder(InferenceContext& context) {
  const SymbolicShape* ids = context.shape(0);
  if (ids == nullptr) return Status::Ok();
  if (ids->empty()) return context.Fail("ids must be [..., tokens]");
  context.SetShape(0, SymbolicShape(ids->begin(), ids->end() - 1));
  return Status::Ok();
}

// Lists, of which nothing is known but that they are such.
template <size_t kCount>
Status Lists(InferenceContext& context) {
  for (size_t i = 0; i < kCount; ++i) context.SetShape(i, {Dimension()});
  return Status::Ok();
}

Status StringEqual(InferenceContext& context) {
  if (context.shape(0) == nullptr || context.shape(1) == nullptr) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(SymbolicShape out, Broadcast(*context.shape(0), *context.shape(1)));
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

// Places [values, 2], the values, and the shape that they have places in.
Status StringSplit(InferenceContext& context) {
  context.SetShape(0, {Dimension(), 2});
  context.SetShape(1, {Dimension()});
  context.SetShape(2, {2});
  return Status::Ok();
}

Status RaggedTensorToDense(InferenceContext& context) {
  context.SetShape(0, {Dimension(), Dimension()});
  return Status::Ok();
}

Status RaggedTensorToSparse(InferenceContext& context) {
  context.SetShape(0, {Dimension(), 2});
  context.SetShape(1, {2});
  return Status::Ok();
}

Status SegmentExtraction(InferenceContext& context) {
  context.SetShape(0, {Dimension(), 2});
  context.SetShape(1, {Dimension()});
  return Status::Ok();
}

Status SegmentSum(InferenceContext& context) {
  const SymbolicShape* data = context.shape(0);
  if (data == nullptr || data->empty()) return Status::Ok();
  SymbolicShape sums = *data;
  sums[0] = Dimension();
  context.SetShape(0, std::move(sums));
  return Status::Ok();
}

Status NegPos(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  context.SetShape(0, *shape);
  context.SetShape(1, *shape);
  return Status::Ok();
}

Status DecodeImage(InferenceContext& context) {
  context.SetShape(0, {Dimension(), Dimension(), 3});
  return Status::Ok();
}

constexpr std::string_view kExtensions = "ai.onnx.contrib";
constexpr InferenceRule kRules[] = {
    {kExtensions, "BasicTokenizer", Lists<1>},
    {kExtensions, "BertTokenizer", BertTokenizer},
    {kExtensions, "BertTokenizerDecoder", Lists<1>},
    {kExtensions, "BpeDecoder", BpeDecoder},
    {kExtensions, "CLIPTokenizer", RowsOfTokens},
    {kExtensions, "DecodeImage", DecodeImage},
    {kExtensions, "EncodeImage", Lists<1>},
    {kExtensions, "GPT2Tokenizer", RowsOfTokens},
    {kExtensions, "HfBertTokenizer", HfBertTokenizer},
    {kExtensions, "HfJsonTokenizer", RowsOfTokens},
    {kExtensions, "Inverse", SameShapeAsInput},
    {kExtensions, "MaskedFill", Lists<1>},
    {kExtensions, "NegPos", NegPos},
    {kExtensions, "RaggedTensorToDense", RaggedTensorToDense},
    {kExtensions, "RaggedTensorToSparse", RaggedTensorToSparse},
    {kExtensions, "RobertaTokenizer", RowsOfTokens},
    {kExtensions, "SegmentExtraction", SegmentExtraction},
    {kExtensions, "SegmentSum", SegmentSum},
    {kExtensions, "SentencepieceDecoder", OneText},
    {kExtensions, "SentencepieceTokenizer", Lists<3>},
    {kExtensions, "SpmTokenizer", RowsOfTokens},
    {kExtensions, "StringConcat", SameShapeAsInput},
    {kExtensions, "StringECMARegexReplace", SameShapeAsInput},
    {kExtensions, "StringEqual", StringEqual},
    {kExtensions, "StringLength", SameShapeAsInput},
    {kExtensions, "StringLower", SameShapeAsInput},
    {kExtensions, "StringMapping", SameShapeAsInput},
    {kExtensions, "StringRegexReplace", SameShapeAsInput},
    {kExtensions, "StringRegexSplitWithOffsets", Lists<4>},
    {kExtensions, "StringSplit", StringSplit},
    {kExtensions, "StringStrip", SameShapeAsInput},
    {kExtensions, "StringUpper", SameShapeAsInput},
    {kExtensions, "WordpieceTokenizer", Lists<4>},
    {"onnxd", "JsonPairTokenizer", RowsOfPairs},
    {"onnxd", "JsonTokenDecoder", JsonTokenDecoder},
};

}  // namespace

std::span<const InferenceRule> ExtensionRules() { return kRules; }

}  // namespace onnxd
