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

// `width`: numbers of each token.
template <typename Put>
Result<Tensor> Rows(const Shape& texts, const std::vector<Encoding>& rows, size_t length, bool left,
                    int64_t width, const Put& put) {
  Shape shape = texts;
  shape.Append(static_cast<int64_t>(length));
  if (width > 1) shape.Append(width);
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(DataType::kInt64, shape));
  auto* to = tensor.mutable_data<int64_t>();
  for (const Encoding& row : rows) {
    const size_t count = std::min(row.ids.size(), length);
    const size_t before = left ? length - count : 0;
    for (size_t place = 0; place < length; ++place, to += width) {
      const bool there = place >= before && place - before < count;
      put(there ? &row : nullptr, place - before, to);
    }
  }
  return tensor;
}

}  // namespace

Result<std::vector<Value>> TokenTensors(const Node& node, const Shape& texts,
                                        const std::vector<Encoding>& rows, const RowLayout& layout,
                                        std::span<const TokenField> fields) {
  const size_t length = RowLength(rows, layout);
  constexpr size_t kMost = size_t{1} << 27;
  if (!rows.empty() && length > kMost / rows.size()) {
    return ResourceExhausted(StrCat(Describe(node), ": ", rows.size(), " rows of ", length,
                                    " tokens are more than ", kMost));
  }
  const int64_t pad = layout.padding.pad_id;
  std::vector<Value> out;
  for (const TokenField field : fields.first(std::min(fields.size(), node.outputs.size()))) {
    // A token of no row is padding.
    const auto put = [field, pad](const Encoding* row, size_t i, int64_t* to) {
      const bool there = row != nullptr;
      switch (field) {
        case TokenField::kIds:
          to[0] = there ? row->ids[i] : pad;
          return;
        case TokenField::kMask:
          to[0] = there ? 1 : 0;
          return;
        case TokenField::kTypes:
          to[0] = there ? row->types[i] : 0;
          return;
        case TokenField::kOffsets:
          to[0] = there ? row->offsets[i].begin : 0;
          to[1] = there ? row->offsets[i].end : 0;
          return;
      }
    };
    ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Rows(texts, rows, length, layout.padding.left,
                                               field == TokenField::kOffsets ? 2 : 1, put));
    out.emplace_back(std::move(tensor));
  }
  return out;
}

Status CheckText(const Node& node, const std::string& text) {
  if (text.size() < (size_t{1} << 31)) return Status::Ok();
  return InvalidArgument(StrCat(Describe(node), ": a text of ", text.size(), " bytes"));
}

Result<std::vector<Encoding>> EncodeAll(const Node& node, const Tensor& texts,
                                        const Tokenizer& tokenizer) {
  std::vector<Encoding> rows;
  for (const std::string& text : texts.elements<std::string>()) {
    ONNXD_RETURN_IF_ERROR(CheckText(node, text));
    auto encoded = tokenizer.Encode(text);
    if (!encoded.ok()) return encoded.status().WithContext(Describe(node));
    rows.push_back(std::move(*encoded));
  }
  return rows;
}

Result<std::vector<Encoding>> EncodePairs(const Node& node, const Tensor& texts,
                                          const Tensor& seconds, const Tokenizer& tokenizer) {
  if (texts.shape() != seconds.shape()) {
    return InvalidArgument(StrCat(Describe(node), ": texts of shapes ", texts.shape().ToString(),
                                  " and ", seconds.shape().ToString()));
  }
  const auto first = texts.elements<std::string>(), second = seconds.elements<std::string>();
  std::vector<Encoding> rows;
  for (size_t i = 0; i < first.size(); ++i) {
    ONNXD_RETURN_IF_ERROR(CheckText(node, first[i]));
    ONNXD_RETURN_IF_ERROR(CheckText(node, second[i]));
    auto encoded = tokenizer.EncodePair(first[i], second[i]);
    if (!encoded.ok()) return encoded.status().WithContext(Describe(node));
    rows.push_back(std::move(*encoded));
  }
  return rows;
}

}  // namespace onnxd
