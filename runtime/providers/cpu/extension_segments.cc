// ai.onnx.contrib RaggedTensorToDense, RaggedTensorToSparse, SegmentExtraction, SegmentSum and
// NegPos. Source of the semantics: onnxruntime-extensions' operators, of which the first two and
// SegmentSum follow tensorflow's.
#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/eager_kernel.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

Status Fail(const Node& node, std::string_view why) {
  return InvalidArgument(StrCat(Describe(node), ": ", why));
}

// Where rows begin and, last, where they end: ascending from 0 on. Gives the length of the longest.
Result<int64_t> LongestRow(const Node& node, std::span<const int64_t> splits) {
  int64_t longest = 0;
  for (size_t i = 0; i + 1 < splits.size(); ++i) {
    if (splits[0] < 0 || splits[i + 1] < splits[i])
      return Fail(node, "the rows' places do not ascend");
    longest = std::max(longest, splits[i + 1] - splits[i]);
  }
  return longest;
}

int64_t RowCount(std::span<const int64_t> splits) {
  return std::max<int64_t>(static_cast<int64_t>(splits.size()) - 1, 0);
}

// (unused, values, missing value, places of rows) -> [rows, longest].
Result<Values> RaggedTensorToDense(const Node& node, std::span<const Value> inputs) {
  const auto values = inputs[1].tensor().elements<int64_t>();
  const auto missing = inputs[2].tensor().elements<int64_t>();
  const auto splits = inputs[3].tensor().elements<int64_t>();
  ONNXD_ASSIGN_OR_RETURN(const int64_t longest, LongestRow(node, splits));
  if (missing.empty()) return Fail(node, "there is no value for what is missing");
  if (!splits.empty() && splits.back() > static_cast<int64_t>(values.size())) {
    return Fail(node, StrCat("rows end at ", splits.back(), " of ", values.size(), " values"));
  }
  const Shape shape = {RowCount(splits), longest};
  constexpr int64_t kMost = int64_t{1} << 28;
  if (shape[0] > 0 && longest > kMost / shape[0]) {
    return ResourceExhausted(
        StrCat(Describe(node), ": ", shape.ToString(), " is more than ", kMost, " elements"));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kInt64, shape));
  auto* to = out.mutable_data<int64_t>();
  for (int64_t row = 0; row < shape[0]; ++row, to += longest) {
    const auto begin = values.begin() + splits[static_cast<size_t>(row)];
    const auto end = values.begin() + splits[static_cast<size_t>(row) + 1];
    std::fill(std::copy(begin, end, to), to + longest, missing[0]);
  }
  return Values{std::move(out)};
}

// Places of rows -> the place [row, column] of each value, and the shape.
Result<Values> RaggedTensorToSparse(const Node& node, std::span<const Value> inputs) {
  const auto splits = inputs[0].tensor().elements<int64_t>();
  ONNXD_ASSIGN_OR_RETURN(const int64_t longest, LongestRow(node, splits));
  const int64_t rows = RowCount(splits);
  const int64_t count = rows > 0 ? splits.back() - splits.front() : 0;
  constexpr int64_t kMost = int64_t{1} << 27;
  if (count > kMost) return ResourceExhausted(StrCat(Describe(node), ": ", count, " values"));
  std::vector<int64_t> places;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t length = splits[static_cast<size_t>(row) + 1] - splits[static_cast<size_t>(row)];
    for (int64_t column = 0; column < length; ++column) places.insert(places.end(), {row, column});
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor indices,
                         TensorFrom<int64_t>(DataType::kInt64, Shape{count, 2}, places));
  ONNXD_ASSIGN_OR_RETURN(Tensor shape,
                         TensorFrom<int64_t>(DataType::kInt64, Shape{2}, {rows, longest}));
  return Values{std::move(indices), std::move(shape)};
}

// Runs of equal numbers but 0 -> where each begins and ends, and its number.
Result<Values> SegmentExtraction(const Node& node, std::span<const Value> inputs) {
  const Shape& shape = inputs[0].tensor().shape();
  if (shape.rank() != 1 && !(shape.rank() == 2 && shape[0] == 1)) {
    return Fail(node, StrCat("expected [n] or [1, n], got ", shape.ToString()));
  }
  const auto numbers = inputs[0].tensor().elements<int64_t>();
  std::vector<int64_t> places, values;
  for (size_t at = 0; at < numbers.size();) {
    size_t end = at;
    while (end < numbers.size() && numbers[end] == numbers[at]) ++end;
    if (numbers[at] != 0) {
      places.insert(places.end(), {static_cast<int64_t>(at), static_cast<int64_t>(end)});
      values.push_back(numbers[at]);
    }
    at = end;
  }
  const auto count = static_cast<int64_t>(values.size());
  ONNXD_ASSIGN_OR_RETURN(Tensor position,
                         TensorFrom<int64_t>(DataType::kInt64, Shape{count, 2}, places));
  ONNXD_ASSIGN_OR_RETURN(Tensor value, TensorFrom<int64_t>(DataType::kInt64, Shape{count}, values));
  return Values{std::move(position), std::move(value)};
}

// Sums of rows of the same segment; segments ascend by 1 at most. Source: tensorflow's segment_sum.
Result<Values> SegmentSum(const Node& node, std::span<const Value> inputs) {
  const Tensor &data = inputs[0].tensor(), &ids = inputs[1].tensor();
  if (data.shape().rank() == 0 || ids.shape().rank() != 1 || ids.shape()[0] != data.shape()[0]) {
    return Fail(node,
                StrCat("data ", data.shape().ToString(), ", segment_ids ", ids.shape().ToString()));
  }
  const auto segments = ids.elements<int64_t>();
  constexpr int64_t kMost = int64_t{1} << 27;
  for (size_t i = 0; i < segments.size(); ++i) {
    const int64_t before = i == 0 ? segments[0] : segments[i - 1];
    if (segments[i] < before || segments[i] > before + 1 || segments[i] < 0 ||
        segments[i] >= kMost) {
      return Fail(node, StrCat("segment_ids must ascend by 1 at most, but ", segments[i],
                               " follows ", before));
    }
  }
  std::vector<int64_t> dims = data.shape().dims();
  dims[0] = segments.empty() ? 0 : segments.back() + 1;
  ONNXD_RETURN_IF_ERROR(Shape(dims).Validate());
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kFloat, Shape(dims)));
  auto* to = out.mutable_data<float>();
  std::fill_n(to, out.ElementCount(), 0.0f);
  const int64_t row =
      segments.empty() ? 0 : data.ElementCount() / static_cast<int64_t>(segments.size());
  const auto* from = data.data<float>();
  for (const int64_t segment : segments) {
    for (int64_t i = 0; i < row; ++i) to[segment * row + i] += *from++;
  }
  return Values{std::move(out)};
}

// The negative elements, and the others; 0 in their place.
Result<Values> NegPos(const Node&, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  ONNXD_ASSIGN_OR_RETURN(Tensor negative, Tensor::Create(DataType::kFloat, x.shape()));
  ONNXD_ASSIGN_OR_RETURN(Tensor positive, Tensor::Create(DataType::kFloat, x.shape()));
  for (int64_t i = 0; i < x.ElementCount(); ++i) {
    const float value = x.data<float>()[i];
    negative.mutable_data<float>()[i] = value > 0 ? 0 : value;
    positive.mutable_data<float>()[i] = value > 0 ? value : 0;
  }
  return Values{std::move(negative), std::move(positive)};
}

}  // namespace

using Made = Result<std::unique_ptr<Kernel>>;

Made MakeRaggedTensorToDense(const KernelInfo&) { return MakeEagerKernel(RaggedTensorToDense); }
Made MakeRaggedTensorToSparse(const KernelInfo&) { return MakeEagerKernel(RaggedTensorToSparse); }
Made MakeSegmentExtraction(const KernelInfo&) { return MakeEagerKernel(SegmentExtraction); }
Made MakeSegmentSum(const KernelInfo&) { return MakeEagerKernel(SegmentSum); }
Made MakeNegPos(const KernelInfo&) { return MakeEagerKernel(NegPos); }

}  // namespace onnxd
