#include "server/http/json_tensor.h"

#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

#include "runtime/base/checked_math.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;

// Objects with a repeated key mean different things to different readers.
Status RefuseRepeatedKeys(const element& json) {
  if (json.is_object()) {
    std::unordered_set<std::string_view> seen;
    for (const auto& field : simdjson::dom::object(json)) {
      if (!seen.insert(field.key).second) {
        return InvalidArgument(
            StrCat("the key \"", field.key.substr(0, 64), "\" stands twice in one object"));
      }
      ONNXD_RETURN_IF_ERROR(RefuseRepeatedKeys(field.value));
    }
  } else if (json.is_array()) {
    for (const element child : array(json)) {
      if (!child.is_object() && !child.is_array()) continue;
      ONNXD_RETURN_IF_ERROR(RefuseRepeatedKeys(child));
    }
  }
  return Status::Ok();
}

const char* KindOf(const element& json) {
  switch (json.type()) {
    case element_type::ARRAY:
      return "an array";
    case element_type::OBJECT:
      return "an object";
    case element_type::STRING:
      return "a string";
    case element_type::BOOL:
      return "a boolean";
    case element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

// Writes elements one after another, in the order of the JSON text.
class ElementWriter {
 public:
  ElementWriter(Tensor& tensor, const std::string& input) : tensor_(tensor), input_(input) {}

  Status Append(const element& json) {
    switch (tensor_.type()) {
      case DataType::kFloat:
        return Real<float>(json);
      case DataType::kDouble:
        return Real<double>(json);
      case DataType::kFloat16:
        return Real<Float16>(json);
      case DataType::kBfloat16:
        return Real<Bfloat16>(json);
      case DataType::kInt8:
        return Integer<int8_t>(json);
      case DataType::kUint8:
        return Integer<uint8_t>(json);
      case DataType::kInt16:
        return Integer<int16_t>(json);
      case DataType::kUint16:
        return Integer<uint16_t>(json);
      case DataType::kInt32:
        return Integer<int32_t>(json);
      case DataType::kUint32:
        return Integer<uint32_t>(json);
      case DataType::kInt64:
        return Integer<int64_t>(json);
      case DataType::kUint64:
        return Integer<uint64_t>(json);
      case DataType::kBool:
        return Boolean(json);
      case DataType::kString:
        return Text(json);
      default:
        return InvalidArgument(StrCat("input '", input_, "': type ", DataTypeName(tensor_.type()),
                                      " has no JSON form"));
    }
  }

  int64_t written() const { return at_; }

 private:
  Status Wrong(const std::string& what) const {
    return InvalidArgument(StrCat("input '", input_, "' element ", at_, " is ", what, ", expected ",
                                  DataTypeName(tensor_.type())));
  }

  template <typename T>
  Status Real(const element& json) {
    double value;
    switch (json.type()) {
      case element_type::DOUBLE:
        value = double(json);
        break;
      case element_type::INT64:
        value = static_cast<double>(int64_t(json));
        break;
      case element_type::UINT64:
        value = static_cast<double>(uint64_t(json));
        break;
      default:
        return Wrong(KindOf(json));
    }
    if constexpr (std::is_same_v<T, double>) {
      tensor_.mutable_data<T>()[at_++] = value;
    } else {
      const T stored = T(static_cast<float>(value));
      if (!std::isfinite(static_cast<float>(stored))) return Wrong(StrCat(value, ", out of range"));
      tensor_.mutable_data<T>()[at_++] = stored;
    }
    return Status::Ok();
  }

  template <typename T>
  Status Integer(const element& json) {
    T stored{};
    bool fits = false;
    switch (json.type()) {
      case element_type::INT64: {
        const int64_t value(json);
        fits = std::in_range<T>(value);
        stored = static_cast<T>(value);
        break;
      }
      case element_type::UINT64: {
        const uint64_t value(json);
        fits = std::in_range<T>(value);
        stored = static_cast<T>(value);
        break;
      }
      case element_type::DOUBLE: {
        const double value(json);
        if (value != std::floor(value)) return Wrong(StrCat(value));
        fits =
            std::abs(value) <= 9007199254740992.0 && std::in_range<T>(static_cast<int64_t>(value));
        if (fits) stored = static_cast<T>(static_cast<int64_t>(value));
        break;
      }
      default:
        return Wrong(KindOf(json));
    }
    if (!fits) return Wrong("a number out of range");
    tensor_.mutable_data<T>()[at_++] = stored;
    return Status::Ok();
  }

  Status Boolean(const element& json) {
    bool value;
    if (json.type() == element_type::BOOL) {
      value = bool(json);
    } else if (json.type() == element_type::INT64 && (int64_t(json) == 0 || int64_t(json) == 1)) {
      value = int64_t(json) == 1;
    } else {
      return Wrong(KindOf(json));
    }
    tensor_.mutable_data<bool>()[at_++] = value;
    return Status::Ok();
  }

  Status Text(const element& json) {
    if (json.type() != element_type::STRING) return Wrong(KindOf(json));
    const std::string_view text(json);
    if (text.size() > (16u << 20)) return Wrong("a string over 16 MB");
    tensor_.mutable_data<std::string>()[at_++] = std::string(text);
    return Status::Ok();
  }

  Tensor& tensor_;
  const std::string& input_;
  int64_t at_ = 0;
};

int64_t SizeOf(const array& list) {
  constexpr size_t kSaturated = 0xFFFFFF;  // simdjson stores 24 bits of an array's size
  if (list.size() < kSaturated) return static_cast<int64_t>(list.size());
  int64_t count = 0;
  for ([[maybe_unused]] const element child : list) ++count;
  return count;
}

// The shape that the first elements of nested arrays suggest.
Shape NestedShape(element json) {
  Shape shape;
  while (json.is_array()) {
    const array list(json);
    shape.Append(SizeOf(list));
    if (list.size() == 0) break;
    json = *list.begin();
  }
  return shape;
}

// Refuses a shape that the document cannot fill, before memory is taken for it.
Status CheckCount(const Shape& shape, int64_t max_elements, const std::string& input) {
  ONNXD_RETURN_IF_ERROR(shape.Validate().WithContext(StrCat("input '", input, "'")));
  if (shape.ElementCount() <= max_elements) return Status::Ok();
  return InvalidArgument(StrCat("input '", input, "' of shape ", shape.ToString(),
                                " has more elements than the request can hold"));
}

Status AppendNestedElements(const element& json, const Shape& shape, int axis,
                            const std::string& input, ElementWriter& writer) {
  if (axis == shape.rank()) {
    if (json.is_array()) {
      return InvalidArgument(StrCat("input '", input, "' is nested unevenly"));
    }
    return writer.Append(json);
  }
  if (!json.is_array()) return InvalidArgument(StrCat("input '", input, "' is nested unevenly"));
  const array list(json);
  // Arrays of more than 2^24 - 1 elements report that size; they are counted.
  int64_t count = 0;
  for (const element child : list) {
    if (++count > shape[axis]) break;
    ONNXD_RETURN_IF_ERROR(AppendNestedElements(child, shape, axis + 1, input, writer));
  }
  if (count == shape[axis]) return Status::Ok();
  return InvalidArgument(StrCat("input '", input, "' is ragged: an array has ",
                                static_cast<int64_t>(list.size()), " elements where another has ",
                                shape[axis]));
}

Status AppendAnyNesting(const element& json, int64_t limit, ElementWriter& writer,
                        const std::string& input) {
  if (!json.is_array()) {
    if (writer.written() >= limit) {
      return InvalidArgument(StrCat("input '", input, "' has more than the ", limit,
                                    " elements that its shape states"));
    }
    return writer.Append(json);
  }
  for (const element child : array(json)) {
    ONNXD_RETURN_IF_ERROR(AppendAnyNesting(child, limit, writer, input));
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<JsonDocument>> JsonDocument::Parse(std::string_view text,
                                                          int64_t max_depth) {
  auto document = std::make_unique<JsonDocument>();
  if (text.empty()) return InvalidArgument("the body is empty, expected JSON");
  if (text.substr(0, 3) == "\xef\xbb\xbf") {
    return InvalidArgument("malformed JSON: it begins with a byte order mark");
  }
  const auto allocated = document->parser_.allocate(text.size(), static_cast<size_t>(max_depth));
  if (allocated == simdjson::MEMALLOC) return Unavailable("no memory for the JSON body");
  if (allocated != simdjson::SUCCESS) return ResourceExhausted("the JSON body is too large");
  const auto error = document->parser_.parse(text.data(), text.size()).get(document->root_);
  if (error == simdjson::MEMALLOC) return Unavailable("no memory for the JSON body");
  if (error == simdjson::DEPTH_ERROR) {
    return InvalidArgument(StrCat("the JSON is nested deeper than ", max_depth));
  }
  if (error != simdjson::SUCCESS) {
    return InvalidArgument(StrCat("malformed JSON: ", simdjson::error_message(error)));
  }
  ONNXD_RETURN_IF_ERROR(RefuseRepeatedKeys(document->root_));
  return document;
}

Result<Tensor> TensorFromNested(const element& json, const ValueType& type,
                                const std::string& input, int64_t max_elements) {
  Shape shape = NestedShape(json);
  const int nested_rank = shape.rank();
  const Shape nested = shape;
  if (type.shape && shape.rank() + 1 == static_cast<int>(type.shape->size())) {
    std::vector<int64_t> with_batch = {1};
    with_batch.insert(with_batch.end(), shape.begin(), shape.end());
    shape = Shape(with_batch);
  } else if (type.shape && shape.rank() != static_cast<int>(type.shape->size())) {
    return InvalidArgument(StrCat("input '", input, "' has ", nested_rank,
                                  " levels of nesting, expected ", ToString(type)));
  }
  if (shape.rank() > kMaxRank) {
    return InvalidArgument(StrCat("input '", input, "' is nested deeper than ", kMaxRank));
  }
  ONNXD_RETURN_IF_ERROR(CheckCount(shape, max_elements, input));
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(type.element, shape));
  ElementWriter writer(tensor, input);
  ONNXD_RETURN_IF_ERROR(AppendNestedElements(json, nested, 0, input, writer));
  return tensor;
}

Result<Tensor> TensorFromData(const element& json, DataType type, const Shape& shape,
                              const std::string& input, int64_t max_elements) {
  if (!json.is_array()) {
    return InvalidArgument(StrCat("input '", input, "': data must be an array"));
  }
  ONNXD_RETURN_IF_ERROR(CheckCount(shape, max_elements, input));
  const int64_t count = shape.ElementCount();
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(type, shape));
  ElementWriter writer(tensor, input);
  ONNXD_RETURN_IF_ERROR(AppendAnyNesting(json, count, writer, input));
  if (writer.written() != count) {
    return InvalidArgument(StrCat("input '", input, "' has ", writer.written(),
                                  " elements, its shape ", shape.ToString(), " needs ", count));
  }
  return tensor;
}

}  // namespace onnxd
