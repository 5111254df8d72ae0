// Value: what an edge of the graph carries. ValueType: what is known of one before it exists.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace onnxd {

class Value;

// Elements in order; all of one type.
struct Sequence {
  std::vector<Value> elements;
};

// Keys int64 or string, in the order they were added; values all of one type.
struct Map {
  std::variant<std::vector<int64_t>, std::vector<std::string>> keys;
  std::vector<Value> values;
};

// An optional that may hold nothing.
struct Optional;

// A cheap value; absent (the empty optional input of ONNX) when default-constructed.
class Value {
 public:
  Value() = default;
  Value(Tensor tensor) : state_(std::move(tensor)) {}  // NOLINT: a tensor is a value
  Value(std::shared_ptr<const Sequence> sequence) : state_(std::move(sequence)) {}  // NOLINT
  Value(std::shared_ptr<const Map> map) : state_(std::move(map)) {}                 // NOLINT
  Value(std::shared_ptr<const Optional> optional) : state_(std::move(optional)) {}  // NOLINT

  bool absent() const { return std::holds_alternative<std::monostate>(state_); }
  bool is_tensor() const { return std::holds_alternative<Tensor>(state_); }
  const Tensor& tensor() const { return std::get<Tensor>(state_); }
  Tensor& tensor() { return std::get<Tensor>(state_); }
  // Null unless the value is of that kind.
  const Sequence* sequence() const { return Get<Sequence>(); }
  const Map* map() const { return Get<Map>(); }
  const Optional* optional() const { return Get<Optional>(); }

 private:
  template <typename T>
  const T* Get() const {
    const auto* held = std::get_if<std::shared_ptr<const T>>(&state_);
    return held ? held->get() : nullptr;
  }
  std::variant<std::monostate, Tensor, std::shared_ptr<const Sequence>, std::shared_ptr<const Map>,
               std::shared_ptr<const Optional>>
      state_;
};

struct Optional {
  Value value;  // absent when the optional is empty
};

// The static type of a value. kTensor: `element` and perhaps `shape` (absent: any rank). kSequence
// and kOptional: `inner` is the element's type. kMap: `element` is the key's type, `inner` the
// value's. kUnknown: nothing is known yet.
struct ValueType {
  enum class Kind { kUnknown, kTensor, kSparseTensor, kSequence, kMap, kOptional };
  Kind kind = Kind::kUnknown;
  DataType element = DataType::kUndefined;
  std::optional<SymbolicShape> shape;
  std::shared_ptr<const ValueType> inner;

  static ValueType TensorOf(DataType element, std::optional<SymbolicShape> shape = std::nullopt);
  static ValueType SequenceOf(ValueType inner);
  static ValueType MapOf(DataType key, ValueType inner);
  static ValueType OptionalOf(ValueType inner);
  bool is_tensor() const { return kind == Kind::kTensor; }
  bool known() const { return kind != Kind::kUnknown; }
};

// "float[batch, 3]", "seq(map(int64, float))", ...
std::string ToString(const ValueType& type);

}  // namespace onnxd
