// The tokenizers of onnxruntime-extensions, domain ai.onnx.contrib.
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

// A row of tokens for each text, and for each token where it begins and ends.
Status RowsOfTokens(InferenceContext& context) {
  for (size_t i = 0; i < 3; ++i) context.SetElement(i, DataType::kInt64);
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
  for (size_t i = 0; i < 4; ++i) {
    context.SetElement(i, DataType::kInt64);
    if (i < 3) context.SetShape(i, {Dimension()});
  }
  context.SetShape(3, {Dimension(), 2});
  return Status::Ok();
}

Status HfBertTokenizer(InferenceContext& context) {
  for (size_t i = 0; i < 3; ++i) {
    context.SetElement(i, DataType::kInt64);
    context.SetShape(i, {1, Dimension()});
  }
  return Status::Ok();
}

Status OneText(InferenceContext& context) {
  context.SetElement(0, DataType::kString);
  context.SetShape(0, {1});
  return Status::Ok();
}

Status BertTokenizerDecoder(InferenceContext& context) {
  context.SetElement(0, DataType::kString);
  context.SetShape(0, {Dimension()});
  return Status::Ok();
}

Status BpeDecoder(InferenceContext& context) {
  context.SetElement(0, DataType::kString);
  const SymbolicShape* ids = context.shape(0);
  if (ids == nullptr) return Status::Ok();
  if (ids->empty()) return context.Fail("ids must be [..., tokens]");
  SymbolicShape texts(ids->begin(), ids->end() - 1);
  if (texts.empty()) texts.emplace_back(1);
  context.SetShape(0, std::move(texts));
  return Status::Ok();
}

// All tokens of all texts, where each text's begin, and where each token does.
Status SentencepieceTokenizer(InferenceContext& context) {
  context.SetElement(0, DataType::kInt32);
  context.SetElement(1, DataType::kInt64);
  context.SetElement(2, DataType::kInt32);
  for (size_t i = 0; i < 3; ++i) context.SetShape(i, {Dimension()});
  return Status::Ok();
}

constexpr std::string_view kExtensions = "ai.onnx.contrib";
constexpr InferenceRule kRules[] = {
    {kExtensions, "BertTokenizer", BertTokenizer},
    {kExtensions, "BertTokenizerDecoder", BertTokenizerDecoder},
    {kExtensions, "BpeDecoder", BpeDecoder},
    {kExtensions, "CLIPTokenizer", RowsOfTokens},
    {kExtensions, "GPT2Tokenizer", RowsOfTokens},
    {kExtensions, "HfBertTokenizer", HfBertTokenizer},
    {kExtensions, "HfJsonTokenizer", RowsOfTokens},
    {kExtensions, "RobertaTokenizer", RowsOfTokens},
    {kExtensions, "SentencepieceDecoder", OneText},
    {kExtensions, "SentencepieceTokenizer", SentencepieceTokenizer},
    {kExtensions, "SpmTokenizer", RowsOfTokens},
};

}  // namespace

std::span<const InferenceRule> TokenizerRules() { return kRules; }

}  // namespace onnxd
