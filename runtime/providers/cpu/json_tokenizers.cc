// ai.onnx.contrib HfJsonTokenizer, and our own JsonPairTokenizer: tokenizer.json within a graph.
// Source of the semantics: Hugging Face's tokenizers library (runtime/text).
#include "runtime/providers/cpu/tokenizer_outputs.h"

namespace onnxd {
namespace {

Result<JsonTokenizer> Parse(const Node& node) {
  return ParseTokenizerJson(node.attributes.String("tokenizer_vocab", ""),
                            node.attributes.String("tokenizer_config", ""));
}

}  // namespace

// Texts -> input_ids, attention_mask, offset_mapping.
Result<std::unique_ptr<Kernel>> MakeHfJsonTokenizer(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const JsonTokenizer made, Parse(info.node));
  return MakeEagerKernel([made](const Node& node,
                                std::span<const Value> inputs) -> Result<std::vector<Value>> {
    constexpr TokenField kFields[] = {TokenField::kIds, TokenField::kMask, TokenField::kOffsets};
    const Tensor& texts = inputs[0].tensor();
    ONNXD_ASSIGN_OR_RETURN(const auto rows, EncodeAll(node, texts, *made.tokenizer));
    return TokenTensors(node, texts.shape(), rows, {made.padding}, kFields);
  });
}

// Pairs of texts -> input_ids, attention_mask, token_type_ids.
Result<std::unique_ptr<Kernel>> MakeJsonPairTokenizer(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const JsonTokenizer made, Parse(info.node));
  return MakeEagerKernel(
      [made](const Node& node, std::span<const Value> inputs) -> Result<std::vector<Value>> {
        constexpr TokenField kFields[] = {TokenField::kIds, TokenField::kMask, TokenField::kTypes};
        const Tensor& texts = inputs[0].tensor();
        ONNXD_ASSIGN_OR_RETURN(const auto rows,
                               EncodePairs(node, texts, inputs[1].tensor(), *made.tokenizer));
        return TokenTensors(node, texts.shape(), rows, {made.padding}, kFields);
      });
}

}  // namespace onnxd
