// Sequences and optionals: SequenceConstruct, -Empty, -Insert, -Erase, -At, -Length (11),
// SplitToSequence (11, 24), ConcatFromSequence (11), Optional, OptionalHasElement,
// OptionalGetElement (15, 18).
#include <algorithm>
#include <cstring>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"
#include "runtime/tensor/copy_elements.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

// A value that does not point at memory of the run.
Result<Value> Owned(const Value& value) {
  if (!value.is_tensor() || value.tensor().owner() != nullptr) return value;
  const Tensor& tensor = value.tensor();
  ONNXD_ASSIGN_OR_RETURN(Tensor copy, Tensor::Create(tensor.type(), tensor.shape()));
  if (tensor.bytes() > 0) std::memcpy(copy.mutable_raw(), tensor.raw(), tensor.bytes());
  return Value(std::move(copy));
}

Result<const Sequence*> SequenceInput(const Node& node, std::span<const Value> inputs) {
  if (inputs.empty() || inputs[0].sequence() == nullptr) {
    return InvalidArgument(StrCat(Describe(node), ": input 0 is no sequence"));
  }
  return inputs[0].sequence();
}

// The position input, which may be negative, within [0, limit].
Result<int64_t> Position(const Node& node, std::span<const Value> inputs, size_t operand,
                         int64_t length, int64_t limit) {
  const Tensor* tensor = TensorAt(inputs, operand);
  if (tensor == nullptr) return limit;
  const auto positions = ElementsAs<int64_t>(*tensor);
  if (positions.size() != 1) {
    return InvalidArgument(StrCat(Describe(node), ": the position must be one number"));
  }
  const int64_t at = positions[0] < 0 ? positions[0] + length : positions[0];
  if (at < 0 || at > limit) {
    return InvalidArgument(
        StrCat(Describe(node), ": position ", positions[0], " is outside a sequence of ", length));
  }
  return at;
}

Result<Values> SequenceConstruct(const Node&, std::span<const Value> inputs) {
  auto sequence = std::make_shared<Sequence>();
  for (const Value& input : inputs) {
    ONNXD_ASSIGN_OR_RETURN(Value element, Owned(input));
    sequence->elements.push_back(std::move(element));
  }
  return Values{std::shared_ptr<const Sequence>(std::move(sequence))};
}

Result<Values> SequenceEmpty(const Node&, std::span<const Value>) {
  return Values{std::make_shared<const Sequence>()};
}

Result<Values> SequenceInsert(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const Sequence* given, SequenceInput(node, inputs));
  const auto length = static_cast<int64_t>(given->elements.size());
  ONNXD_ASSIGN_OR_RETURN(const int64_t at, Position(node, inputs, 2, length, length));
  ONNXD_ASSIGN_OR_RETURN(Value element, Owned(inputs[1]));
  auto sequence = std::make_shared<Sequence>(*given);
  sequence->elements.insert(sequence->elements.begin() + at, std::move(element));
  return Values{std::shared_ptr<const Sequence>(std::move(sequence))};
}

Result<Values> SequenceErase(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const Sequence* given, SequenceInput(node, inputs));
  const auto length = static_cast<int64_t>(given->elements.size());
  if (length == 0) return InvalidArgument(StrCat(Describe(node), ": the sequence is empty"));
  ONNXD_ASSIGN_OR_RETURN(const int64_t at, Position(node, inputs, 1, length, length - 1));
  auto sequence = std::make_shared<Sequence>(*given);
  sequence->elements.erase(sequence->elements.begin() + at);
  return Values{std::shared_ptr<const Sequence>(std::move(sequence))};
}

Result<Values> SequenceAt(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const Sequence* given, SequenceInput(node, inputs));
  const auto length = static_cast<int64_t>(given->elements.size());
  if (length == 0) return InvalidArgument(StrCat(Describe(node), ": the sequence is empty"));
  ONNXD_ASSIGN_OR_RETURN(const int64_t at, Position(node, inputs, 1, length, length - 1));
  return Values{given->elements[static_cast<size_t>(at)]};
}

Result<Values> SequenceLength(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const Sequence* given, SequenceInput(node, inputs));
  return Values{Tensor::Scalar(static_cast<int64_t>(given->elements.size()))};
}

Result<std::vector<int64_t>> SplitLengths(const Node& node, const Tensor* split, int64_t extent) {
  if (split == nullptr) return std::vector<int64_t>(static_cast<size_t>(extent), 1);
  std::vector<int64_t> lengths = ElementsAs<int64_t>(*split);
  if (split->shape().rank() == 0) {
    const int64_t each = lengths.at(0);
    if (each < 1) return InvalidArgument(StrCat(Describe(node), ": split is ", each));
    lengths.clear();
    for (int64_t at = 0; at < extent; at += each) lengths.push_back(std::min(each, extent - at));
  }
  int64_t sum = 0;
  for (const int64_t length : lengths) {
    if (length < 0 || length > extent) return InvalidArgument(StrCat(Describe(node), ": split"));
    sum += length;
  }
  if (sum != extent) {
    return InvalidArgument(
        StrCat(Describe(node), ": split sums to ", sum, ", the axis has ", extent));
  }
  return lengths;
}

Result<Values> SplitToSequence(const Node& node, std::span<const Value> inputs) {
  const Tensor& in = inputs[0].tensor();
  const Tensor* split = TensorAt(inputs, 1);
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(node.attributes.Int("axis", 0), in.shape().rank()));
  const bool drop = split == nullptr && node.attributes.Int("keepdims", 1) == 0;
  ONNXD_ASSIGN_OR_RETURN(const auto lengths, SplitLengths(node, split, in.shape()[axis]));
  const int64_t outer = in.shape().ElementCount(0, axis);
  const int64_t inner = in.shape().ElementCount(axis + 1, in.shape().rank());
  auto sequence = std::make_shared<Sequence>();
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    std::vector<int64_t> dims = in.shape().dims();
    dims[static_cast<size_t>(axis)] = length;
    if (drop) dims.erase(dims.begin() + axis);
    ONNXD_ASSIGN_OR_RETURN(Tensor part, Tensor::Create(in.type(), Shape(std::move(dims))));
    for (int64_t o = 0; o < outer; ++o) {
      CopyElements(in, (o * in.shape()[axis] + begin) * inner, part, o * length * inner,
                   length * inner);
    }
    begin += length;
    sequence->elements.emplace_back(std::move(part));
  }
  return Values{std::shared_ptr<const Sequence>(std::move(sequence))};
}

Result<Values> ConcatFromSequence(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const Sequence* given, SequenceInput(node, inputs));
  const auto& elements = given->elements;
  if (elements.empty() || !elements[0].is_tensor()) {
    return InvalidArgument(StrCat(Describe(node), ": the sequence holds no tensor"));
  }
  const bool new_axis = node.attributes.Int("new_axis", 0) != 0;
  const Tensor& first = elements[0].tensor();
  std::vector<int64_t> dims = first.shape().dims();
  ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(node.attributes.Int("axis", 0),
                                                       first.shape().rank() + (new_axis ? 1 : 0)));
  const auto extent_of = [&](const Tensor& tensor) { return new_axis ? 1 : tensor.shape()[axis]; };
  int64_t extent = 0;
  for (const Value& element : elements) {
    const Tensor& tensor = element.tensor();
    bool fits = tensor.type() == first.type() && tensor.shape().rank() == first.shape().rank();
    for (int i = 0; fits && i < first.shape().rank(); ++i) {
      fits = tensor.shape()[i] == first.shape()[i] || (!new_axis && i == axis);
    }
    if (!fits) return InvalidArgument(StrCat(Describe(node), ": the elements do not match"));
    extent += extent_of(tensor);
  }
  const int64_t outer = first.shape().ElementCount(0, axis);
  const int64_t inner = first.shape().ElementCount(axis + (new_axis ? 0 : 1), first.shape().rank());
  if (new_axis) {
    dims.insert(dims.begin() + axis, extent);
  } else {
    dims[static_cast<size_t>(axis)] = extent;
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(first.type(), Shape(std::move(dims))));
  int64_t at = 0;
  for (const Value& element : elements) {
    const int64_t own = extent_of(element.tensor());
    for (int64_t o = 0; o < outer; ++o) {
      CopyElements(element.tensor(), o * own * inner, out, (o * extent + at) * inner, own * inner);
    }
    at += own;
  }
  return Values{std::move(out)};
}

Result<Values> MakeOptionalValue(const Node&, std::span<const Value> inputs) {
  auto optional = std::make_shared<Optional>();
  if (!inputs.empty() && !inputs[0].absent()) {
    ONNXD_ASSIGN_OR_RETURN(optional->value, Owned(inputs[0]));
  }
  return Values{std::shared_ptr<const Optional>(std::move(optional))};
}

Result<Values> OptionalHasElement(const Node&, std::span<const Value> inputs) {
  bool has = !inputs.empty() && !inputs[0].absent();
  if (has && inputs[0].optional() != nullptr) has = !inputs[0].optional()->value.absent();
  return Values{Tensor::Scalar(has)};
}

Result<Values> OptionalGetElement(const Node& node, std::span<const Value> inputs) {
  if (inputs[0].optional() == nullptr) {
    ONNXD_ASSIGN_OR_RETURN(Value value, Owned(inputs[0]));
    return Values{std::move(value)};
  }
  if (inputs[0].optional()->value.absent()) {
    return InvalidArgument(StrCat(Describe(node), ": the optional is empty"));
  }
  return Values{inputs[0].optional()->value};
}

}  // namespace

#define EAGER(name, function)                                     \
  Result<std::unique_ptr<Kernel>> Make##name(const KernelInfo&) { \
    return MakeEagerKernel(function);                             \
  }
EAGER(SequenceConstruct, SequenceConstruct)
EAGER(SequenceEmpty, SequenceEmpty)
EAGER(SequenceInsert, SequenceInsert)
EAGER(SequenceErase, SequenceErase)
EAGER(SequenceAt, SequenceAt)
EAGER(SequenceLength, SequenceLength)
EAGER(SplitToSequence, SplitToSequence)
EAGER(ConcatFromSequence, ConcatFromSequence)
EAGER(Optional, MakeOptionalValue)
EAGER(OptionalHasElement, OptionalHasElement)
EAGER(OptionalGetElement, OptionalGetElement)
#undef EAGER

}  // namespace onnxd
