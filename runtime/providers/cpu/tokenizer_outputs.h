// What the kernels of tokenizers have in common: rows of tokens as tensors.
#pragma once

#include <span>
#include <vector>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/text/tokenizer_json.h"

namespace onnxd {

// How rows of different lengths become one tensor; longer ones than padding.length are cut where
// `cuts` says so, else all become as long as the longest.
struct RowLayout {
  BatchPadding padding;
  bool cuts = false;
};

// What a kernel gives of the tokens of texts: their numbers, 1 where there is one and 0 where
// padding is, which text they are of, where they stand in it.
enum class TokenField { kIds, kMask, kTypes, kOffsets };

// A tensor for each of `fields`, as many as the node has outputs: [..., length] in the shape of the
// texts, and for offsets [..., length, 2], in characters. kResourceExhausted for more than 2^27
// elements.
Result<std::vector<Value>> TokenTensors(const Node& node, const Shape& texts,
                                        const std::vector<Encoding>& rows, const RowLayout& layout,
                                        std::span<const TokenField> fields);

// kInvalidArgument for a text of 2^31 bytes and more.
Status CheckText(const Node& node, const std::string& text);

// The texts, each encoded, or with the one of `seconds` in its place.
Result<std::vector<Encoding>> EncodeAll(const Node& node, const Tensor& texts,
                                        const Tokenizer& tokenizer);
Result<std::vector<Encoding>> EncodePairs(const Node& node, const Tensor& texts,
                                          const Tensor& seconds, const Tokenizer& tokenizer);

}  // namespace onnxd
