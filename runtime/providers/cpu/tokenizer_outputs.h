// What the kernels of tokenizers have in common: rows of tokens as tensors.
#pragma once

#include <span>
#include <vector>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/text/tokenizer.h"

namespace onnxd {

// How rows of different lengths become one tensor.
struct RowLayout {
  int64_t pad_id = 0;
  int64_t length =
      0;  // of each row: longer ones are cut, shorter ones filled up; 0: that of the longest
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
