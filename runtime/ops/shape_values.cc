#include "runtime/ops/shape_values.h"

#include <algorithm>
#include <map>

#include "runtime/base/checked_math.h"
#include "runtime/base/str_cat.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {
namespace {

constexpr size_t kMaxElements = 2 * kMaxRank;
constexpr size_t kMaxSymbolLength = 200;

struct Arguments {
  const Node& node;
  std::span<const ValueType> types;
  std::span<const ShapeValues* const> values;

  const ShapeValues* value(size_t i) const { return i < values.size() ? values[i] : nullptr; }
  const SymbolicShape* shape(size_t i) const {
    return i < types.size() && types[i].shape ? &*types[i].shape : nullptr;
  }
};

using Rule = std::optional<ShapeValues> (*)(const Arguments&);

// A start or end of a range over n positions, negative counted from the end, clipped.
int64_t Position(int64_t at, int64_t n) { return std::clamp<int64_t>(at < 0 ? at + n : at, 0, n); }

// An operand that must be one number.
std::optional<int64_t> Number(const ShapeValues* values) {
  if (values == nullptr || values->elements.size() != 1) return std::nullopt;
  return values->elements[0].number;
}

std::optional<ShapeValues> Shape(const Arguments& a) {
  const SymbolicShape* shape = a.shape(0);
  if (shape == nullptr) return std::nullopt;
  const auto rank = static_cast<int64_t>(shape->size());
  const int64_t begin = Position(a.node.attributes.Int("start", 0), rank);
  const int64_t end = Position(a.node.attributes.Int("end", rank), rank);
  ShapeValues out;
  for (int64_t i = begin; i < end; ++i) {
    out.elements.push_back(ShapeValue::Of((*shape)[static_cast<size_t>(i)]));
  }
  return out;
}

std::optional<ShapeValues> Gather(const Arguments& a) {
  const ShapeValues* data = a.value(0);
  const ShapeValues* indices = a.value(1);
  if (data == nullptr || indices == nullptr || data->scalar) return std::nullopt;
  const auto n = static_cast<int64_t>(data->elements.size());
  ShapeValues out{indices->scalar, {}};
  for (const ShapeValue& index : indices->elements) {
    if (!index.number || *index.number < -n || *index.number >= n) return std::nullopt;
    const int64_t at = *index.number < 0 ? *index.number + n : *index.number;
    out.elements.push_back(data->elements[static_cast<size_t>(at)]);
  }
  return out;
}

std::optional<ShapeValues> Slice(const Arguments& a) {
  const ShapeValues* data = a.value(0);
  const auto start = Number(a.value(1)), end = Number(a.value(2));
  if (a.node.since_version < 10 || data == nullptr || data->scalar || !start || !end) {
    return std::nullopt;
  }
  const bool has_axes = a.node.input(3) != kNoValue, has_steps = a.node.input(4) != kNoValue;
  if (has_axes && Number(a.value(3)).value_or(9) != 0 && Number(a.value(3)).value_or(9) != -1) {
    return std::nullopt;
  }
  if (has_steps && Number(a.value(4)) != 1) return std::nullopt;
  const auto n = static_cast<int64_t>(data->elements.size());
  ShapeValues out;
  for (int64_t i = Position(*start, n); i < Position(*end, n); ++i) {
    out.elements.push_back(data->elements[static_cast<size_t>(i)]);
  }
  return out;
}

std::optional<ShapeValues> Concat(const Arguments& a) {
  ShapeValues out;
  for (const ShapeValues* part : a.values) {
    if (part == nullptr || part->scalar) return std::nullopt;
    out.elements.insert(out.elements.end(), part->elements.begin(), part->elements.end());
  }
  return out;
}

// Operators that keep the elements and whose result is a row, or a scalar.
std::optional<ShapeValues> SameElements(const Arguments& a) {
  return a.value(0) == nullptr ? std::nullopt : std::optional(*a.value(0));
}

std::optional<ShapeValues> Unsqueeze(const Arguments& a) {
  const ShapeValues* data = a.value(0);
  if (data == nullptr || !data->scalar) return std::nullopt;
  const size_t axes = a.node.since_version >= 13
                          ? (a.value(1) == nullptr ? 0 : a.value(1)->elements.size())
                          : a.node.attributes.Ints("axes").size();
  return axes == 1 ? std::optional(ShapeValues{false, data->elements}) : std::nullopt;
}

std::optional<ShapeValues> Squeeze(const Arguments& a) {
  const ShapeValues* data = a.value(0);
  if (data == nullptr || data->scalar || data->elements.size() != 1) return std::nullopt;
  return ShapeValues{true, data->elements};
}

std::optional<ShapeValues> Reshape(const Arguments& a) {
  const ShapeValues* data = a.value(0);
  const ShapeValues* target = a.value(1);
  if (data == nullptr || target == nullptr || target->elements.size() > 1) return std::nullopt;
  return ShapeValues{target->elements.empty(), data->elements};
}

std::optional<ShapeValues> Cast(const Arguments& a) {
  const auto to = static_cast<DataType>(a.node.attributes.Int("to", 0));
  if (to != DataType::kInt64 && to != DataType::kInt32) return std::nullopt;
  return SameElements(a);
}

std::optional<ShapeValues> ConstantOfShape(const Arguments& a) {
  const auto count = Number(a.value(0));
  if (!count || *count < 0 || *count > static_cast<int64_t>(kMaxElements)) return std::nullopt;
  const Initializer* value = a.node.attributes.TensorValue("value");
  if (value == nullptr || value->type() != DataType::kInt64 || value->shape().ElementCount() != 1) {
    return std::nullopt;
  }
  const auto tensor = value->Materialize();
  if (!tensor.ok()) return std::nullopt;
  const ShapeValue element{*tensor->data<int64_t>(), ""};
  return ShapeValues{false, std::vector<ShapeValue>(static_cast<size_t>(*count), element)};
}

// Element by element over as many rows of equal length; scalars and rows of one stretch.
template <typename Combine>
std::optional<ShapeValues> Elementwise(const Arguments& a, size_t operands, Combine combine) {
  size_t length = 1;
  bool scalar = true;
  for (size_t i = 0; i < operands; ++i) {
    if (a.value(i) == nullptr) return std::nullopt;
    scalar = scalar && a.value(i)->scalar;
    if (a.value(i)->elements.size() != 1) length = a.value(i)->elements.size();
  }
  ShapeValues out{scalar, {}};
  for (size_t at = 0; at < length; ++at) {
    std::vector<ShapeValue> row;
    for (size_t i = 0; i < operands; ++i) {
      const auto& elements = a.value(i)->elements;
      if (elements.size() != 1 && elements.size() != length) return std::nullopt;
      row.push_back(elements[elements.size() == 1 ? 0 : at]);
    }
    out.elements.push_back(combine(row));
  }
  return out;
}

// The factors of a product of symbols, sorted, its number first; empty where that is too long.
std::string Product(const std::string& a, const std::string& b) {
  SymbolFactors all = FactorsOf(a);
  const SymbolFactors more = FactorsOf(b);
  const auto number = CheckedMultiply(all.number, more.number);
  if (!number) return "";
  all.names.insert(all.names.end(), more.names.begin(), more.names.end());
  std::sort(all.names.begin(), all.names.end());
  std::string out = *number == 1 ? "" : StrCat(*number);
  for (const std::string& name : all.names) out += (out.empty() ? "" : "*") + name;
  return out.size() > kMaxSymbolLength ? "" : out;
}

ShapeValue Multiply(const std::vector<ShapeValue>& row) {
  const ShapeValue &a = row[0], &b = row[1];
  if (a.number && b.number) {
    const auto product = CheckedMultiply(*a.number, *b.number);
    return product ? ShapeValue{*product, ""} : ShapeValue{};
  }
  if (a.unknown() || b.unknown()) return {};
  if (a.number == 1) return b;
  if (b.number == 1) return a;
  if (a.number.value_or(1) < 1 || b.number.value_or(1) < 1) return {};
  return {std::nullopt, Product(a.number ? StrCat(*a.number) : a.symbol,
                                b.number ? StrCat(*b.number) : b.symbol)};
}

// Of a whole row.
std::optional<ShapeValues> ReduceProd(const Arguments& a) {
  const ShapeValues* data = a.value(0);
  if (data == nullptr || data->scalar) return std::nullopt;
  const bool by_input = a.node.input(1) != kNoValue;
  if (by_input && (a.value(1) == nullptr || a.value(1)->elements.empty())) return std::nullopt;
  if (!by_input && a.node.attributes.Int("noop_with_empty_axes", 0) != 0) return std::nullopt;
  ShapeValue product{1, ""};
  for (const ShapeValue& element : data->elements) product = Multiply({product, element});
  return ShapeValues{a.node.attributes.Int("keepdims", 1) == 0, {std::move(product)}};
}

// Symbols are never negative.
ShapeValue Larger(const ShapeValue& a, const ShapeValue& b) {
  if (a.number && b.number) return {std::max(*a.number, *b.number), ""};
  if (a.unknown() || b.unknown()) return {};
  if (a == b || b.number.value_or(1) <= 0) return a;
  return a.number.value_or(1) <= 0 ? b : ShapeValue{};
}

std::optional<ShapeValues> Max(const Arguments& a) {
  return Elementwise(a, a.values.size(), [](const std::vector<ShapeValue>& row) {
    ShapeValue largest = row[0];
    for (const ShapeValue& value : row) largest = Larger(largest, value);
    return largest;
  });
}

ShapeValue Add(const std::vector<ShapeValue>& row) {
  const ShapeValue &a = row[0], &b = row[1];
  if (a.number && b.number) {
    const auto sum = CheckedAdd(*a.number, *b.number);
    return sum ? ShapeValue{*sum, ""} : ShapeValue{};
  }
  if (a.number == 0) return b;
  return b.number == 0 ? a : ShapeValue{};
}

ShapeValue Subtract(const std::vector<ShapeValue>& row) {
  const ShapeValue &a = row[0], &b = row[1];
  if (b.number == 0) return a;
  if (!a.number || !b.number || *b.number == INT64_MIN) return {};
  const auto difference = CheckedAdd(*a.number, -*b.number);
  return difference ? ShapeValue{*difference, ""} : ShapeValue{};
}

ShapeValue Divide(const std::vector<ShapeValue>& row) {
  const ShapeValue &a = row[0], &b = row[1];
  if (b.number == 1) return a;
  if (!a.number || !b.number || *b.number <= 0) return {};
  return {*a.number / *b.number, ""};
}

// 1 or 0; symbols differ from negative numbers for sure.
ShapeValue Equals(const std::vector<ShapeValue>& row) {
  const ShapeValue &a = row[0], &b = row[1];
  if (a.unknown() || b.unknown()) return {};
  if (a == b) return {1, ""};
  const bool differ =
      (a.number && b.number) || a.number.value_or(0) < 0 || b.number.value_or(0) < 0;
  return differ ? ShapeValue{0, ""} : ShapeValue{};
}

ShapeValue Choose(const std::vector<ShapeValue>& row) {
  if (row[0].number) return *row[0].number != 0 ? row[1] : row[2];
  return row[1] == row[2] ? row[1] : ShapeValue{};
}

template <ShapeValue (*combine)(const std::vector<ShapeValue>&), size_t operands = 2>
std::optional<ShapeValues> EachElement(const Arguments& a) {
  return Elementwise(a, operands, combine);
}

Rule FindRule(const Node& node) {
  static const std::map<std::string_view, Rule> rules = {
      {"Shape", Shape},
      {"Gather", Gather},
      {"Slice", Slice},
      {"Concat", Concat},
      {"Unsqueeze", Unsqueeze},
      {"Squeeze", Squeeze},
      {"Reshape", Reshape},
      {"Cast", Cast},
      {"Identity", SameElements},
      {"ConstantOfShape", ConstantOfShape},
      {"Add", EachElement<Add>},
      {"Sub", EachElement<Subtract>},
      {"Mul", EachElement<Multiply>},
      {"Max", Max},
      {"ReduceProd", ReduceProd},
      {"Div", EachElement<Divide>},
      {"Equal", EachElement<Equals>},
      {"Where", EachElement<Choose, 3>},
  };
  if (!node.domain.empty()) return nullptr;
  const auto found = rules.find(node.op_type);
  return found == rules.end() ? nullptr : found->second;
}

}  // namespace

SymbolFactors FactorsOf(const std::string& symbol) {
  SymbolFactors factors;
  // "2*n + 1" is no product.
  if (symbol.find_first_of(" +-/()") != std::string::npos) return {1, {symbol}};
  for (size_t begin = 0; begin <= symbol.size();) {
    const size_t end = std::min(symbol.find('*', begin), symbol.size());
    std::string factor = symbol.substr(begin, end - begin);
    const bool digits =
        !factor.empty() && factor.size() < 16 &&
        std::all_of(factor.begin(), factor.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits) {
      const auto product = CheckedMultiply(factors.number, std::stoll(factor));
      if (!product) return {1, {symbol}};
      factors.number = *product;
    } else {
      factors.names.push_back(std::move(factor));
    }
    begin = end + 1;
  }
  return factors;
}

ShapeValue ShapeValue::Of(const Dimension& dimension) {
  if (dimension.known()) return {dimension.value, ""};
  return {std::nullopt, dimension.symbol};
}

Dimension ShapeValue::ToDimension() const {
  if (number) return Dimension(*number);
  return symbol.empty() ? Dimension() : Dimension::Symbol(symbol);
}

std::optional<ShapeValues> PropagateShapeValues(const Node& node, std::span<const ValueType> types,
                                                std::span<const ShapeValues* const> values) {
  const Rule rule = FindRule(node);
  if (rule == nullptr) return std::nullopt;
  auto out = rule({node, types, values});
  if (out && out->elements.size() > kMaxElements) return std::nullopt;
  return out;
}

}  // namespace onnxd
