// ai.onnx.contrib HfJsonTokenizer, and our own JsonPairTokenizer and JsonTokenDecoder:
// tokenizer.json within a graph. Source of the semantics: Hugging Face's tokenizers library
// (runtime/text).
#include "runtime/providers/cpu/tokenizer_outputs.h"
#include "runtime/text/token_decoder.h"

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

// Rows of tokens -> their texts.
Result<std::unique_ptr<Kernel>> MakeJsonTokenDecoder(const KernelInfo& info) {
  const auto& attributes = info.node.attributes;
  ONNXD_ASSIGN_OR_RETURN(const auto decoder,
                         ParseTokenDecoder(attributes.String("tokenizer_vocab", "")));
  const bool skips = attributes.Int("skip_special_tokens", 1) != 0;
  return MakeEagerKernel(
      [decoder, skips](const Node& node,
                       std::span<const Value> inputs) -> Result<std::vector<Value>> {
        const Tensor& ids = inputs[0].tensor();
        const Shape& shape = ids.shape();
        if (shape.rank() == 0)
          return InvalidArgument(StrCat(Describe(node), ": the ids are no row"));
        Shape rows;
        for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows.Append(shape[axis]);
        ONNXD_ASSIGN_OR_RETURN(Tensor texts, Tensor::Create(DataType::kString, rows));
        const auto elements = ids.elements<int64_t>();
        auto* const out = texts.mutable_data<std::string>();
        const auto count = static_cast<size_t>(shape[shape.rank() - 1]);
        for (size_t row = 0; row < static_cast<size_t>(rows.ElementCount()); ++row) {
          out[row] = decoder->Decode(elements.subspan(row * count, count), skips);
        }
        return std::vector<Value>{std::move(texts)};
      });
}

}  // namespace onnxd
