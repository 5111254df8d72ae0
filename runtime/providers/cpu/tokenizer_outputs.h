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

// {input_ids, attention_mask, offset_mapping}, of which the first `count` are made: [..., length]
// in the shape of the texts, and for offsets [..., length, 2], in characters. kResourceExhausted
// for more than 2^27 elements.
Result<std::vector<Value>> TokenTensors(const Node& node, const Shape& texts,
                                        const std::vector<Encoding>& rows, RowLayout layout);

// The texts, each encoded. kInvalidArgument for one of 2^31 bytes and more.
Result<std::vector<Encoding>> EncodeAll(const Node& node, const Tensor& texts,
                                        const Tokenizer& tokenizer);

}  // namespace onnxd
