#include "tests/hostile/mutation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

void ForgetShape(ValueType& type) {
  if (type.is_tensor()) type.shape.reset();
}

// Tensor of `dims` whose elements repeat those of `from`; zeros when it has none.
Tensor Refilled(const Tensor& from, const Shape& shape) {
  Result<Tensor> made = Tensor::Create(from.type(), shape);
  if (!made.ok()) return from;
  Tensor tensor = std::move(made).value();
  const auto count = static_cast<size_t>(tensor.ElementCount());
  const auto available = static_cast<size_t>(from.ElementCount());
  if (from.type() == DataType::kString) {
    for (size_t i = 0; i < count && available > 0; ++i) {
      tensor.mutable_data<std::string>()[i] = from.data<std::string>()[i % available];
    }
    return tensor;
  }
  auto* to = static_cast<std::byte*>(tensor.mutable_raw());
  const auto* bytes = static_cast<const std::byte*>(from.raw());
  for (size_t i = 0; i < tensor.bytes(); ++i) {
    to[i] = from.bytes() > 0 ? bytes[i % from.bytes()] : std::byte{0};
  }
  return tensor;
}

}  // namespace

int64_t Mutator::OtherInteger() {
  static constexpr std::array<int64_t, 16> kValues = {0,
                                                      1,
                                                      -1,
                                                      2,
                                                      -2,
                                                      3,
                                                      7,
                                                      100,
                                                      -100,
                                                      int64_t{1} << 20,
                                                      int64_t{1} << 31,
                                                      -(int64_t{1} << 31),
                                                      int64_t{1} << 40,
                                                      int64_t{1} << 62,
                                                      kMax,
                                                      kMin};
  return kValues[Below(kValues.size())];
}

double Mutator::OtherFloat() {
  static constexpr std::array<double, 12> kValues = {0.0,
                                                     -0.0,
                                                     1.0,
                                                     -1.0,
                                                     0.5,
                                                     1e-30,
                                                     1e30,
                                                     -1e30,
                                                     1e18,
                                                     std::numeric_limits<double>::quiet_NaN(),
                                                     std::numeric_limits<double>::infinity(),
                                                     -std::numeric_limits<double>::infinity()};
  return kValues[Below(kValues.size())];
}

std::string Mutator::OtherString() {
  static const std::array<std::string, 8> kValues = {
      "",           "x",      "\xff\xfe",          "((", std::string(1000, 'a'),
      "SAME_UPPER", "linear", std::string(3, '\0')};
  return kValues[Below(kValues.size())];
}

std::vector<int64_t> Mutator::OtherDims(std::vector<int64_t> dims) {
  const size_t choice = Below(10);
  if (dims.empty()) return choice < 5 ? std::vector<int64_t>{0} : std::vector<int64_t>{1, 2};
  const size_t axis = Below(dims.size());
  switch (choice) {
    case 0:
    case 1:
      dims[axis] = 0;
      break;
    case 2:
      ++dims[axis];
      break;
    case 3:
      dims[axis] = std::max<int64_t>(0, dims[axis] - 1);
      break;
    case 4:
      dims[axis] = 1;
      break;
    case 5:
      dims.push_back(1);
      break;
    case 6:
      dims.insert(dims.begin(), 2);
      break;
    case 7:
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
      break;
    case 8:
      dims.clear();
      break;
    default:
      dims = {0};
  }
  return dims;
}

Tensor* Mutator::AnyTensor(std::vector<Value>& inputs) {
  if (inputs.empty()) return nullptr;
  Value& value = inputs[Below(inputs.size())];
  return value.is_tensor() ? &value.tensor() : nullptr;
}

std::string Mutator::MutateShape(std::vector<Value>& inputs) {
  Tensor* tensor = AnyTensor(inputs);
  if (tensor == nullptr) return "";
  const Shape shape(OtherDims(tensor->shape().dims()));
  *tensor = Refilled(*tensor, shape);
  return StrCat(" shape ", shape.ToString());
}

std::string Mutator::MutateElements(std::vector<Value>& inputs) {
  Tensor* tensor = AnyTensor(inputs);
  if (tensor == nullptr || tensor->ElementCount() == 0) return "";
  *tensor = Refilled(*tensor, tensor->shape());  // never the memory of another value
  const auto count = static_cast<size_t>(tensor->ElementCount());
  const bool all = Below(3) == 0;
  const size_t only = Below(count);
  if (tensor->type() == DataType::kString) {
    tensor->mutable_data<std::string>()[only] = OtherString();
    return " string";
  }
  if (DataTypeBits(tensor->type()) < 8) {
    static_cast<std::byte*>(tensor->mutable_raw())[0] = static_cast<std::byte>(Below(256));
    return " bits";
  }
  const bool floating = tensor->type() == DataType::kFloat || tensor->type() == DataType::kDouble ||
                        tensor->type() == DataType::kFloat16 ||
                        tensor->type() == DataType::kBfloat16;
  const auto bytes = static_cast<size_t>(DataTypeBits(tensor->type())) / 8;
  if (!floating && Below(3) == 0) {  // as axes, an axis comes twice
    auto* const elements = static_cast<std::byte*>(tensor->mutable_raw());
    std::memmove(elements + only * bytes, elements + Below(count) * bytes, bytes);
    return " an element again";
  }
  const double number = floating ? OtherFloat() : 0;
  const int64_t integer = OtherInteger();
  for (size_t i = all ? 0 : only; i < (all ? count : only + 1); ++i) {
    auto* at = static_cast<std::byte*>(tensor->mutable_raw()) + i * bytes;
    if (tensor->type() == DataType::kFloat) {
      const auto narrowed = static_cast<float>(number);
      std::memcpy(at, &narrowed, bytes);
    } else if (tensor->type() == DataType::kDouble) {
      std::memcpy(at, &number, bytes);
    } else if (tensor->type() == DataType::kBool) {
      *at = static_cast<std::byte>(integer & 1);
    } else {
      std::memcpy(at, &integer, std::min(bytes, sizeof integer));
    }
  }
  return StrCat(" elements ", floating ? std::to_string(number) : std::to_string(integer));
}

void Mutator::Change(Attribute& attribute) {
  if (auto* integer = std::get_if<int64_t>(&attribute)) *integer = OtherInteger();
  if (auto* number = std::get_if<float>(&attribute)) *number = static_cast<float>(OtherFloat());
  if (auto* text = std::get_if<std::string>(&attribute)) *text = OtherString();
  if (auto* integers = std::get_if<std::vector<int64_t>>(&attribute)) {
    if (integers->empty() || Below(4) == 0) {
      integers->push_back(OtherInteger());
    } else if (Below(4) == 0) {
      integers->pop_back();
    } else if (Below(3) == 0) {  // an axis comes twice
      (*integers)[Below(integers->size())] = (*integers)[Below(integers->size())];
    } else {
      (*integers)[Below(integers->size())] = OtherInteger();
    }
  }
  if (auto* numbers = std::get_if<std::vector<float>>(&attribute)) {
    if (numbers->empty() || Below(4) == 0) {
      numbers->push_back(static_cast<float>(OtherFloat()));
    } else if (Below(4) == 0) {
      numbers->pop_back();
    } else {
      (*numbers)[Below(numbers->size())] = static_cast<float>(OtherFloat());
    }
  }
  if (auto* texts = std::get_if<std::vector<std::string>>(&attribute)) {
    if (texts->empty() || Below(2) == 0) {
      texts->push_back(OtherString());
    } else {
      texts->pop_back();
    }
  }
}

std::string Mutator::MutateAttribute(Graph& graph) {
  if (graph.nodes.empty()) return "";
  Node& node = graph.nodes[Below(graph.nodes.size())];
  auto& entries = node.attributes.entries();
  if (entries.empty()) return "";
  const auto entry = std::next(entries.begin(), static_cast<std::ptrdiff_t>(Below(entries.size())));
  const std::string name = entry->first;
  if (Below(6) == 0) {
    entries.erase(entry);
    return StrCat(" without ", name);
  }
  Change(entry->second);
  return StrCat(" attribute ", name);
}

std::string Mutator::MutateOperand(Graph& graph) {
  if (graph.nodes.empty()) return "";
  Node& node = graph.nodes[Below(graph.nodes.size())];
  if (node.inputs.empty()) return "";
  const size_t position = Below(node.inputs.size());
  if (Below(2) == 0) {
    node.inputs[position] = kNoValue;
    return StrCat(" without operand ", position);
  }
  node.inputs[position] = node.inputs[Below(node.inputs.size())];
  return StrCat(" another operand ", position);
}

Graph& Mutator::AnyGraph(Graph& graph) {
  std::vector<Graph*> subgraphs;
  for (Node& node : graph.nodes) {
    for (auto& [name, attribute] : node.attributes.entries()) {
      auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (subgraph != nullptr && *subgraph != nullptr) subgraphs.push_back(subgraph->get());
    }
  }
  if (subgraphs.empty() || Below(3) == 0) return graph;
  return AnyGraph(*subgraphs[Below(subgraphs.size())]);
}

std::string Mutator::MutateType(Graph& main, std::vector<Value>& inputs) {
  static constexpr std::array<DataType, 12> kTypes = {
      DataType::kFloat, DataType::kDouble, DataType::kFloat16, DataType::kBfloat16,
      DataType::kInt64, DataType::kInt32,  DataType::kInt8,    DataType::kUint8,
      DataType::kBool,  DataType::kString, DataType::kInt4,    DataType::kFloat8E4M3FN};
  Graph& graph = AnyGraph(main);
  if (graph.value_count() == 0) return "";
  const auto id = static_cast<ValueId>(Below(graph.value_count()));
  ValueType& type = graph.value(id).type;
  const auto input = std::find(graph.inputs.begin(), graph.inputs.end(), id);
  const bool given = &graph == &main && input != graph.inputs.end();
  if (!given && Below(3) == 0) {
    type = ValueType{};
    return StrCat(" no type of ", graph.value(id).name);
  }
  if (!type.is_tensor()) return "";
  type.element = kTypes[Below(kTypes.size())];
  if (given) {
    Value& value = inputs[static_cast<size_t>(input - graph.inputs.begin())];
    if (!value.is_tensor()) return "";
    const Shape shape = value.tensor().shape();
    Result<Tensor> other = Converted(value.tensor(), type.element);
    if (!other.ok()) other = Tensor::Create(type.element, shape);
    if (!other.ok()) return "";
    // Elements that could not be converted are zeros.
    if (!IsConvertible(type.element) || !IsConvertible(value.tensor().type())) {
      other = Refilled(Tensor::Create(type.element, Shape{0}).value(), shape);
    }
    value = std::move(*other);
  }
  return StrCat(" type ", DataTypeName(type.element), " of ", graph.value(id).name);
}

std::string Mutator::Mutate(Model& model, std::vector<Value>& inputs) {
  for (size_t id = 0; id < model.graph.value_count(); ++id) {
    ForgetShape(model.graph.value(static_cast<ValueId>(id)).type);
  }
  std::string changes;
  for (size_t left = 1 + Below(3); left > 0; --left) {
    switch (Below(8)) {
      case 0:
        changes += MutateOperand(AnyGraph(model.graph));
        break;
      case 1:
      case 2:
        changes += MutateAttribute(AnyGraph(model.graph));
        break;
      case 3:
        changes += MutateElements(inputs);
        break;
      case 4:
      case 5:
        changes += MutateType(model.graph, inputs);
        break;
      default:
        changes += MutateShape(inputs);
    }
  }
  return changes;
}

}  // namespace onnxd
