#include "runtime/format/value_file.h"

#include <optional>

#include "runtime/base/str_cat.h"
#include "runtime/format/tensor_reader.h"
#include "runtime/base/wire_reader.h"
#include "runtime/format/wire_writer.h"

namespace onnxd {
namespace {

constexpr int kMaxDepth = 16;

Result<Value> ReadValue(WireReader& reader, uint64_t end, const ValueType& type, int depth);

Result<Tensor> ReadTensorValue(WireReader& reader, uint64_t end) {
  ExternalData external;
  ONNXD_ASSIGN_OR_RETURN(const auto named, ReadTensor(reader, end, external));
  return named.second.Materialize();
}

// The kinds of elements that SequenceProto and OptionalProto hold, by the field that holds them.
std::optional<ValueType::Kind> KindOfField(uint32_t number) {
  switch (number) {
    case 3:
      return ValueType::Kind::kTensor;
    case 5:
      return ValueType::Kind::kSequence;
    case 6:
      return ValueType::Kind::kMap;
    case 7:
      return ValueType::Kind::kOptional;
    default:
      return std::nullopt;
  }
}

// Calls add(Value) for each element of a SequenceProto or OptionalProto.
template <typename Add>
Status ReadElements(WireReader& reader, uint64_t end, int depth, const Add& add) {
  while (!reader.AtEnd(end)) {
    ONNXD_ASSIGN_OR_RETURN(const WireField field, reader.NextField(end));
    const auto kind = KindOfField(field.number);
    if (!kind) {
      ONNXD_RETURN_IF_ERROR(reader.Skip(field, end));
      continue;
    }
    ValueType element;
    element.kind = *kind;
    ONNXD_RETURN_IF_ERROR(reader.Expect(field, WireType::kBytes));
    ONNXD_ASSIGN_OR_RETURN(const uint64_t stop, reader.Enter(end));
    ONNXD_ASSIGN_OR_RETURN(Value value, ReadValue(reader, stop, element, depth + 1));
    add(std::move(value));
  }
  return Status::Ok();
}

Result<Value> ReadSequence(WireReader& reader, uint64_t end, int depth) {
  auto sequence = std::make_shared<Sequence>();
  ONNXD_RETURN_IF_ERROR(ReadElements(
      reader, end, depth, [&](Value value) { sequence->elements.push_back(std::move(value)); }));
  return Value(std::shared_ptr<const Sequence>(std::move(sequence)));
}

// MapProto: 3 integer keys, 4 string keys, 5 the values as a SequenceProto.
Result<Value> ReadMap(WireReader& reader, uint64_t end, int depth) {
  auto map = std::make_shared<Map>();
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
  while (!reader.AtEnd(end)) {
    ONNXD_ASSIGN_OR_RETURN(const WireField field, reader.NextField(end));
    if (field.number == 3) {
      ONNXD_RETURN_IF_ERROR(reader.Varints(field, end, ints));
    } else if (field.number == 4 && field.type == WireType::kBytes) {
      ONNXD_ASSIGN_OR_RETURN(std::string key, reader.Text(end));
      strings.push_back(std::move(key));
    } else if (field.number == 5 && field.type == WireType::kBytes) {
      ONNXD_ASSIGN_OR_RETURN(const uint64_t stop, reader.Enter(end));
      ONNXD_ASSIGN_OR_RETURN(const Value values, ReadSequence(reader, stop, depth + 1));
      map->values = values.sequence()->elements;
    } else {
      ONNXD_RETURN_IF_ERROR(reader.Skip(field, end));
    }
  }
  if (strings.empty()) {
    map->keys = std::move(ints);
  } else {
    map->keys = std::move(strings);
  }
  const size_t keys = std::visit([](const auto& k) { return k.size(); }, map->keys);
  if (keys != map->values.size()) return InvalidArgument("a map has unequal keys and values");
  return Value(std::shared_ptr<const Map>(std::move(map)));
}

// Without an element it is empty.
Result<Value> ReadOptional(WireReader& reader, uint64_t end, int depth) {
  auto optional = std::make_shared<Optional>();
  ONNXD_RETURN_IF_ERROR(
      ReadElements(reader, end, depth, [&](Value value) { optional->value = std::move(value); }));
  return Value(std::shared_ptr<const Optional>(std::move(optional)));
}

Result<Value> ReadValue(WireReader& reader, uint64_t end, const ValueType& type, int depth) {
  if (depth > kMaxDepth) return InvalidArgument("a value is nested too deep");
  switch (type.kind) {
    case ValueType::Kind::kSequence:
      return ReadSequence(reader, end, depth);
    case ValueType::Kind::kMap:
      return ReadMap(reader, end, depth);
    case ValueType::Kind::kOptional:
      return ReadOptional(reader, end, depth);
    default: {
      ONNXD_ASSIGN_OR_RETURN(Tensor tensor, ReadTensorValue(reader, end));
      return Value(std::move(tensor));
    }
  }
}

int SequenceElementType(const Value& value) {
  // SequenceProto.DataType and OptionalProto.DataType share their numbers.
  if (value.is_tensor()) return 1;
  if (value.sequence() != nullptr) return 3;
  if (value.map() != nullptr) return 4;
  if (value.optional() != nullptr) return 5;
  return 0;
}

uint32_t FieldOf(const Value& value) {
  if (value.is_tensor()) return 3;
  if (value.sequence() != nullptr) return 5;
  return value.map() != nullptr ? 6 : 7;
}

}  // namespace

Result<Value> ParseValue(std::string bytes, const ValueType& type) {
  LoadBudget budget(static_cast<int64_t>(4 * bytes.size() + (16 << 20)));
  const uint64_t size = bytes.size();
  WireReader reader(MemorySource(std::move(bytes), "value"), &budget);
  return ReadValue(reader, size, type, 0);
}

Result<std::string> SerializeValue(const Value& value) {
  WireWriter writer;
  if (value.is_tensor()) {
    WriteTensor(writer, "", value.tensor());
  } else if (const Sequence* sequence = value.sequence()) {
    if (!sequence->elements.empty()) {
      writer.Varint(2, static_cast<uint64_t>(SequenceElementType(sequence->elements[0])));
    }
    for (const Value& element : sequence->elements) {
      ONNXD_ASSIGN_OR_RETURN(const std::string bytes, SerializeValue(element));
      writer.Bytes(FieldOf(element), bytes);
    }
  } else if (const Map* map = value.map()) {
    const auto* ints = std::get_if<std::vector<int64_t>>(&map->keys);
    writer.Varint(2, static_cast<uint64_t>(ints ? DataType::kInt64 : DataType::kString));
    if (ints != nullptr) {
      for (const int64_t key : *ints) writer.Varint(3, static_cast<uint64_t>(key));
    } else {
      for (const auto& key : std::get<std::vector<std::string>>(map->keys)) writer.Bytes(4, key);
    }
    auto values = std::make_shared<Sequence>();
    values->elements = map->values;
    ONNXD_ASSIGN_OR_RETURN(const std::string bytes,
                           SerializeValue(Value(std::shared_ptr<const Sequence>(values))));
    writer.Bytes(5, bytes);
  } else if (const Optional* optional = value.optional()) {
    if (!optional->value.absent()) {
      writer.Varint(2, static_cast<uint64_t>(SequenceElementType(optional->value)));
      ONNXD_ASSIGN_OR_RETURN(const std::string bytes, SerializeValue(optional->value));
      writer.Bytes(FieldOf(optional->value), bytes);
    }
  } else {
    return InvalidArgument("an absent value cannot be written");
  }
  return std::move(writer).Take();
}

}  // namespace onnxd
