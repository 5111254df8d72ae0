// ai.onnx.contrib SentencepieceTokenizer and SentencepieceDecoder. Source of the semantics:
// onnxruntime-extensions' operators, which follow tensorflow_text's; fairseq's numbers are those of
// XLM-RoBERTa in transformers. Offsets are in bytes of the text.
#include <algorithm>

#include "runtime/providers/cpu/string_tensors.h"
#include "runtime/providers/cpu/tokenizer_outputs.h"
#include "runtime/text/sentencepiece.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

Result<std::shared_ptr<const Sentencepiece>> MakeModel(const Node& node) {
  ONNXD_ASSIGN_OR_RETURN(SentencepieceSpec spec,
                         SentencepieceSpec::Parse(node.attributes.String("model", "")));
  return Sentencepiece::Make(std::move(spec));
}

// Fairseq begins with <s>, <pad>, </s>, <unk> and has all other pieces one further on.
int64_t ToFairseq(const Sentencepiece& model, int64_t id) {
  if (id == model.unknown_id()) return 3;
  if (id == model.bos_id()) return 0;
  if (id == model.eos_id()) return 2;
  return id + 1;
}

int64_t FromFairseq(const Sentencepiece& model, int64_t id) {
  if (id == 3) return model.unknown_id();
  if (id == 0) return model.bos_id();
  if (id == 2) return model.eos_id();
  return id - 1;
}

// The first element of an optional input of flags or numbers.
template <typename T>
T First(std::span<const Value> inputs, size_t i, T fallback) {
  const Tensor* tensor = TensorAt(inputs, i);
  return tensor == nullptr || tensor->ElementCount() == 0 ? fallback : *tensor->data<T>();
}

// Texts -> all their tokens one after another, where each text's begin, and the tokens' offsets.
Result<Values> Encode(const Sentencepiece& model, const Node& node, std::span<const Value> inputs) {
  enum : size_t { kTexts, kNbestSize, kAlpha, kAddBos, kAddEos, kReverse, kFairseq };
  const int64_t nbest = First<int64_t>(inputs, kNbestSize, 0);
  if (nbest != 0 && nbest != 1) {
    return Unimplemented(StrCat(Describe(node), ": nbest_size ", nbest,
                                ": drawing one of several segmentations, which is for training"));
  }
  const bool bos = First<bool>(inputs, kAddBos, false), eos = First<bool>(inputs, kAddEos, false);
  const bool reverse = First<bool>(inputs, kReverse, false);
  const bool fairseq = First<bool>(inputs, kFairseq, false);
  std::vector<int32_t> ids, offsets;
  std::vector<int64_t> begins = {0};
  for (const std::string& text : inputs[kTexts].tensor().elements<std::string>()) {
    ONNXD_RETURN_IF_ERROR(CheckText(node, text));
    std::vector<Token> tokens = model.Encode(text);
    if (bos) tokens.insert(tokens.begin(), Token{model.bos_id(), 0, 0});
    if (eos) tokens.push_back({model.eos_id(), static_cast<uint32_t>(text.size()), 0});
    if (reverse) std::reverse(tokens.begin(), tokens.end());
    for (const Token& token : tokens) {
      ids.push_back(static_cast<int32_t>(fairseq ? ToFairseq(model, token.id) : token.id));
      offsets.push_back(static_cast<int32_t>(token.begin));
    }
    begins.push_back(static_cast<int64_t>(ids.size()));
  }
  const auto count = static_cast<int64_t>(ids.size());
  Values out;
  ONNXD_ASSIGN_OR_RETURN(Tensor tokens, TensorFrom(DataType::kInt32, Shape{count}, ids));
  ONNXD_ASSIGN_OR_RETURN(
      Tensor instances,
      TensorFrom(DataType::kInt64, Shape{static_cast<int64_t>(begins.size())}, begins));
  out.emplace_back(std::move(tokens));
  out.emplace_back(std::move(instances));
  if (node.outputs.size() > 2) {
    ONNXD_ASSIGN_OR_RETURN(Tensor indices, TensorFrom(DataType::kInt32, Shape{count}, offsets));
    out.emplace_back(std::move(indices));
  }
  return out;
}

Result<Values> Decode(const Sentencepiece& model, const Node& node, std::span<const Value> inputs) {
  const Tensor& ids = inputs[0].tensor();
  const Shape& shape = ids.shape();
  if (shape.rank() != 1 && !(shape.rank() == 2 && shape[0] == 1)) {
    return InvalidArgument(
        StrCat(Describe(node), ": expected ids [n] or [1, n], got ", shape.ToString()));
  }
  const auto elements = ids.elements<int64_t>();
  std::vector<int64_t> tokens(elements.begin(), elements.end());
  if (First<bool>(inputs, 1, false)) {
    for (int64_t& id : tokens) id = FromFairseq(model, id);
  }
  auto text = model.Decode(tokens);
  if (!text.ok()) return InvalidArgument(StrCat(Describe(node), ": ", text.status().message()));
  return OneValue(StringTensor(Shape{1}, {std::move(*text)}));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeSentencepieceTokenizer(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const auto model, MakeModel(info.node));
  return MakeEagerKernel([model](const Node& node, std::span<const Value> inputs) {
    return Encode(*model, node, inputs);
  });
}

Result<std::unique_ptr<Kernel>> MakeSentencepieceDecoder(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const auto model, MakeModel(info.node));
  return MakeEagerKernel([model](const Node& node, std::span<const Value> inputs) {
    return Decode(*model, node, inputs);
  });
}

}  // namespace onnxd
