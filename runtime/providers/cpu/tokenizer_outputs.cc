#include "runtime/providers/cpu/tokenizer_outputs.h"

#include <algorithm>

#include "runtime/base/ceil_divide.h"

namespace onnxd {

namespace {

size_t RowLength(const std::vector<Encoding>& rows, const RowLayout& layout) {
  auto length = static_cast<size_t>(std::max<int64_t>(layout.padding.length, 0));
  if (layout.cuts && length > 0) return length;
  for (const Encoding& row : rows) length = std::max(length, row.ids.size());
  const int64_t multiple = layout.padding.multiple_of;
  return static_cast<size_t>(CeilDivide(static_cast<int64_t>(length), multiple) * multiple);
}

}  // namespace

Result<std::vector<Value>> TokenTensors(const Node& node, const Shape& texts,
                                        const std::vector<Encoding>& rows, RowLayout layout) {
  const size_t length = RowLength(rows, layout);
  constexpr size_t kMost = size_t{1} << 27;
  if (!rows.empty() && length > kMost / rows.size()) {
    return ResourceExhausted(StrCat(Describe(node), ": ", rows.size(), " rows of ", length,
                                    " tokens are more than ", kMost));
  }
  std::vector<Value> out;
  Shape shape = texts;
  shape.Append(static_cast<int64_t>(length));
  Shape offsets_shape = shape;
  offsets_shape.Append(2);
  for (size_t output = 0; output < std::min<size_t>(node.outputs.size(), 3); ++output) {
    ONNXD_ASSIGN_OR_RETURN(Tensor tensor,
                           Tensor::Create(DataType::kInt64, output == 2 ? offsets_shape : shape));
    auto* to = tensor.mutable_data<int64_t>();
    for (const Encoding& row : rows) {
      const size_t count = std::min(row.ids.size(), length);
      const size_t before = layout.padding.left ? length - count : 0;
      for (size_t place = 0; place < length; ++place) {
        const size_t i = place - before;
        const bool there = place >= before && i < count;
        if (output == 0) *to++ = there ? row.ids[i] : layout.padding.pad_id;
        if (output == 1) *to++ = there ? 1 : 0;
        if (output != 2) continue;
        *to++ = there ? row.offsets[i].begin : 0;
        *to++ = there ? row.offsets[i].end : 0;
      }
    }
    out.emplace_back(std::move(tensor));
  }
  return out;
}

Result<std::vector<Encoding>> EncodeAll(const Node& node, const Tensor& texts,
                                        const Tokenizer& tokenizer) {
  std::vector<Encoding> rows;
  for (const std::string& text : texts.elements<std::string>()) {
    if (text.size() >= (size_t{1} << 31)) {
      return InvalidArgument(StrCat(Describe(node), ": a text of ", text.size(), " bytes"));
    }
    rows.push_back(tokenizer.Encode(text));
  }
  return rows;
}

}  // namespace onnxd
