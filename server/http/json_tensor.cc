#include "server/http/json_tensor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/type_dispatch.h"
#include "server/http/json_number.h"
#include "server/http/plain_number.h"
#include "server/inference/base64.h"

namespace onnxd {
namespace {

using ArrayIterator = simdjson::ondemand::array_iterator;
using simdjson::ondemand::json_type;

constexpr size_t kMostStringBytes = 16 << 20;

struct Target {
  DataType type;
  const std::string& input;
  const JsonTensorOptions& options;

  int max_axes() const {
    return static_cast<int>(std::clamp<int64_t>(options.max_depth, 0, kMaxRank));
  }
};

Status TooDeep(const Target& target) {
  return InvalidArgument(
      StrCat("input '", target.input, "' is nested deeper than ", target.max_axes()));
}

template <typename T>
constexpr bool kReal =
    std::is_floating_point_v<T> || std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

std::optional<double> TokenValue(std::string_view token) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back()))) {
    token.remove_suffix(1);
  }
  if (token == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (token == "Infinity" || token == "Inf") return kInfinity;
  if (token == "-Infinity" || token == "-Inf") return -kInfinity;
  return std::nullopt;
}

constexpr std::string_view kOutOfRange = "a number out of range";

// Why an element is not taken.
Status Wrong(const Target& target, int64_t at, std::string_view what) {
  return InvalidArgument(StrCat("input '", target.input, "' element ", at, " is ", what,
                                ", expected ", DataTypeName(target.type)));
}

Status Uneven(const std::string& input) {
  return InvalidArgument(StrCat("input '", input, "' is nested unevenly"));
}

Status WrongKind(JsonValue json, const Target& target, int64_t at) {
  json_type type = json_type::null;
  ONNXD_RETURN_IF_ERROR(JsonStatus(json.type().get(type)));
  switch (type) {
    case json_type::array:
      return Uneven(target.input);
    case json_type::object:
      return Wrong(target, at, "an object");
    case json_type::string:
      return Wrong(target, at, "a string");
    case json_type::boolean:
      return Wrong(target, at, "a boolean");
    case json_type::null:
      return Wrong(target, at, "null");
    case json_type::number:
      if (IsBeyondDoubles(json.raw_json_token())) return Wrong(target, at, kOutOfRange);
      return JsonStatus(simdjson::NUMBER_ERROR);
  }
  return JsonStatus(simdjson::TAPE_ERROR);
}

template <typename T>
Status ReadToken(JsonValue json, const Target& target, int64_t at, T& to) {
  if (!target.options.non_finite_tokens) return WrongKind(json, target, at);
  const auto token = TokenValue(json.raw_json_token());
  if (!token) return WrongKind(json, target, at);
  to = T(static_cast<float>(*token));
  return Status::Ok();  // iteration skips what was not taken
}

// An integer beyond int64, or a whole number with a fraction or an exponent.
template <typename T>
Status ReadWhole(JsonValue json, const Target& target, int64_t at, T& to) {
  uint64_t large;
  double value;
  bool fits = false;
  if (json.get_uint64().get(large) == simdjson::SUCCESS) {
    fits = std::in_range<T>(large);
    to = static_cast<T>(large);
  } else if (ReadDouble(json, value)) {
    if (value != std::floor(value)) return Wrong(target, at, StrCat(value));
    // Up to where every whole number has a double of its own.
    fits = std::abs(value) <= 9007199254740992.0 && std::in_range<T>(static_cast<int64_t>(value));
    if (fits) to = static_cast<T>(static_cast<int64_t>(value));
  } else {
    return WrongKind(json, target, at);
  }
  return fits ? Status::Ok() : Wrong(target, at, kOutOfRange);
}

Status ReadBoolean(JsonValue json, const Target& target, int64_t at, bool& to) {
  if (json.get_bool().get(to) == simdjson::SUCCESS) return Status::Ok();
  int64_t number;
  if (json.get_int64().get(number) != simdjson::SUCCESS) return WrongKind(json, target, at);
  to = number == 1;
  return number == 0 || number == 1 ? Status::Ok() : Wrong(target, at, "a number");
}

// {"b64": "..."}
Status ReadBase64(JsonObject object, const Target& target, int64_t at, std::string& to) {
  bool read = false;
  ONNXD_RETURN_IF_ERROR(ForEachField(object, [&](std::string_view key, JsonValue value) {
    std::string_view text;
    if (key != "b64" || value.get_string().get(text) != simdjson::SUCCESS) {
      return Wrong(target, at, "an object other than {\"b64\": a string}");
    }
    auto bytes = DecodeBase64(text);
    if (!bytes) return Wrong(target, at, "no base64");
    to = *std::move(bytes);
    read = true;
    return Status::Ok();
  }));
  return read ? Status::Ok() : Wrong(target, at, "an object");
}

Status ReadText(JsonValue json, const Target& target, int64_t at, std::string& to) {
  std::string_view text;
  if (JsonObject object;
      target.options.base64 && json.get_object().get(object) == simdjson::SUCCESS) {
    return ReadBase64(object, target, at, to);
  }
  const auto error = json.get_string().get(text);
  if (error == simdjson::INCORRECT_TYPE) {
    json_type type = json_type::null;
    ONNXD_RETURN_IF_ERROR(JsonStatus(json.type().get(type)));
    if (type == json_type::number) return Wrong(target, at, "a number");
    return WrongKind(json, target, at);
  }
  ONNXD_RETURN_IF_ERROR(JsonStatus(error));
  if (text.size() > kMostStringBytes) return Wrong(target, at, "a string over 16 MB");
  to = text;
  return Status::Ok();
}

// Reads one element that is not plain to `to`. `at` is its index.
template <typename T>
Status ReadOther(JsonValue json, const Target& target, int64_t at, T& to) {
  if constexpr (std::is_same_v<T, std::string>) {
    return ReadText(json, target, at, to);
  } else if constexpr (std::is_same_v<T, bool>) {
    return ReadBoolean(json, target, at, to);
  } else if constexpr (kReal<T>) {
    return ReadToken(json, target, at, to);
  } else {
    return ReadWhole(json, target, at, to);
  }
}

enum class Plain { kRead, kOther, kOutOfRange };

// Not inlined: it is rare, and long.
[[gnu::noinline]] bool ReadOtherNumber(simdjson::simdjson_result<JsonValue>& json, double& to) {
  return json.error() == simdjson::SUCCESS && ReadDouble(json.value_unsafe(), to);
}

// Iteration skips what was read from its text, after which simdjson needs more room than this does.
[[gnu::always_inline]] inline bool ReadNumber(simdjson::simdjson_result<JsonValue>& json,
                                              double& to) {
  static_assert(kPlainNumberReads <= simdjson::SIMDJSON_PADDING);
  if (json.error() == simdjson::SUCCESS) {
    double plain;
    if (ReadPlainNumber(json.value_unsafe().raw_json_token().data(), plain)) {
      to = plain;
      return true;
    }
  }
  return ReadOtherNumber(json, to);
}

// What most elements are. kOther: it stays to be read.
template <typename T>
[[gnu::always_inline]] inline Plain ReadPlain(simdjson::simdjson_result<JsonValue>& json, T& to) {
  if constexpr (kReal<T>) {
    double value;
    if (!ReadNumber(json, value)) return Plain::kOther;
    if constexpr (std::is_same_v<T, double>) {
      to = value;
      return Plain::kRead;
    } else {
      to = T(static_cast<float>(value));
      return std::isfinite(static_cast<float>(to)) ? Plain::kRead : Plain::kOutOfRange;
    }
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    int64_t value;
    if (json.get_int64().get(value) != simdjson::SUCCESS) return Plain::kOther;
    to = static_cast<T>(value);
    return std::in_range<T>(value) ? Plain::kRead : Plain::kOutOfRange;
  } else {
    return Plain::kOther;
  }
}

template <typename T>
struct Run {
  T* end;      // of what was read
  Plain stop;  // what the element at `at` is; kRead: there is no more, or no room
};

// Plain elements, one after another, with little else to keep in registers.
template <typename T>
[[gnu::noinline]] Run<T> ReadRun(ArrayIterator at, const ArrayIterator& end, T* to, T* room) {
  for (; at != end && to != room; ++at, ++to) {
    auto json = *at;
    const Plain plain = ReadPlain(json, *to);
    if (plain != Plain::kRead) return {to, plain};
  }
  return {to, Plain::kRead};
}

// Elements in the order of the text, in a tensor of one axis with room for more.
template <typename T>
class Elements {
 public:
  explicit Elements(const Target& target) : target_(target) {}

  Status Reserve(int64_t room) {
    ONNXD_ASSIGN_OR_RETURN(Tensor larger, Tensor::Create(target_.type, Shape({room})));
    T* const to = larger.mutable_data<T>();
    std::move(data_, data_ + count_, to);
    tensor_ = std::move(larger);
    data_ = to;
    room_ = room;
    return Status::Ok();
  }
  // From now on more elements than there is room for are refused.
  void Fix() { fixed_ = true; }

  Status AppendOne(simdjson::simdjson_result<JsonValue> json) {
    if (count_ == room_) ONNXD_RETURN_IF_ERROR(Grow());
    const Plain plain = ReadPlain(json, data_[count_]);
    if (plain == Plain::kOutOfRange) return Wrong(target_, count_, kOutOfRange);
    if (plain == Plain::kOther) ONNXD_RETURN_IF_ERROR(ReadSlowly(json, count_));
    ++count_;
    return Status::Ok();
  }

  Status AppendRow(JsonArray array) {
    ArrayIterator at, end;
    ONNXD_RETURN_IF_ERROR(JsonStatus(array.begin().get(at)));
    ONNXD_RETURN_IF_ERROR(JsonStatus(array.end().get(end)));
    while (at != end) {
      if (count_ == room_) ONNXD_RETURN_IF_ERROR(Grow());
      const Run<T> run = ReadRun(at, end, data_ + count_, data_ + room_);
      count_ = run.end - data_;
      if (run.stop == Plain::kRead) continue;
      if (run.stop == Plain::kOutOfRange) return Wrong(target_, count_, kOutOfRange);
      ONNXD_RETURN_IF_ERROR(ReadSlowly(*at, count_));
      ++count_;
      ++at;
    }
    return Status::Ok();
  }

  int64_t count() const { return count_; }

  // As a tensor of `shape`, of as many elements.
  Result<Tensor> Take(const Shape& shape) {
    if (count_ == room_) return tensor_.Reshaped(shape);
    if constexpr (std::is_same_v<T, std::string>) {
      ONNXD_RETURN_IF_ERROR(Reserve(count_));
      return tensor_.Reshaped(shape);
    } else {
      return Tensor::Wrap(target_.type, shape, data_, tensor_.owner());
    }
  }

 private:
  Status Grow() {
    if (!fixed_) return Reserve(2 * room_ + 16);
    return InvalidArgument(StrCat("input '", target_.input, "' has more than the ", room_,
                                  " elements that its shape states"));
  }

  [[gnu::noinline]] Status ReadSlowly(simdjson::simdjson_result<JsonValue> json, int64_t at) {
    JsonValue value;
    ONNXD_RETURN_IF_ERROR(JsonStatus(json.get(value)));
    return ReadOther(value, target_, at, data_[at]);
  }

  const Target& target_;
  Tensor tensor_;
  T* data_ = nullptr;
  int64_t count_ = 0, room_ = 0;
  bool fixed_ = false;
};

enum class Holds { kNoArray, kArrays, kElements };

// What an array holds, by its first element; an empty one holds elements.
Holds HoldsOf(JsonValue json) {
  json_type type = json_type::null;
  if (json.type().get(type) != simdjson::SUCCESS || type != json_type::array) {
    return Holds::kNoArray;
  }
  const std::string_view bracket = json.raw_json_token();  // up to the next token
  return bracket.data()[bracket.size()] == '[' ? Holds::kArrays : Holds::kElements;
}

// Arrays in arrays; every one of an axis is as long as the first.
template <typename T>
class NestedReader {
 public:
  NestedReader(const ValueType& type, const Target& target)
      : type_(type), target_(target), elements_(target) {
    lengths_.fill(kUnknown);
  }

  Result<Tensor> Read(JsonValue json, int64_t expected) {
    ONNXD_RETURN_IF_ERROR(elements_.Reserve(expected));
    ONNXD_RETURN_IF_ERROR(ReadAxis(json, 0));
    Shape shape;
    const bool lacks_axis = type_.shape && rank_ < static_cast<int>(type_.shape->size());
    if (lacks_axis && !target_.options.by_row) shape.Append(1);
    for (int axis = 0; axis < rank_; ++axis) shape.Append(lengths_[static_cast<size_t>(axis)]);
    if (lacks_axis && target_.options.by_row) shape.Append(1);
    ONNXD_RETURN_IF_ERROR(shape.Validate().WithContext(StrCat("input '", target_.input, "'")));
    return elements_.Take(shape);
  }

 private:
  static constexpr int kUnknown = -1;

  Status ReadAxis(JsonValue json, int axis) {
    const Holds holds = HoldsOf(json);
    if (holds == Holds::kNoArray) {
      if (axis > 0) return Uneven(target_.input);
      ONNXD_RETURN_IF_ERROR(SetRank(0));
      return elements_.AppendOne(JsonValue(json));
    }
    if (axis == target_.max_axes()) return TooDeep(target_);
    if (axis == rank_ || (holds == Holds::kArrays && axis + 1 == rank_)) {
      return Uneven(target_.input);
    }
    JsonArray array;
    ONNXD_RETURN_IF_ERROR(JsonStatus(json.get_array().get(array)));
    int64_t length = 0;
    if (holds == Holds::kElements) {
      if (rank_ == kUnknown) ONNXD_RETURN_IF_ERROR(SetRank(axis + 1));
      const int64_t before = elements_.count();
      ONNXD_RETURN_IF_ERROR(elements_.AppendRow(array));
      length = elements_.count() - before;
      if (length > 0 && axis + 1 != rank_) return Uneven(target_.input);
    } else {
      ONNXD_RETURN_IF_ERROR(ForEachElement(array, [&](JsonValue element) {
        ++length;
        return ReadAxis(element, axis + 1);
      }));
    }
    int64_t& known = lengths_[static_cast<size_t>(axis)];
    if (known == kUnknown) known = length;
    if (known == length) return Status::Ok();
    return InvalidArgument(StrCat("input '", target_.input, "' is ragged: an array has ", length,
                                  " elements where another has ", known));
  }

  Status SetRank(int rank) {
    rank_ = rank;
    if (!type_.shape) return Status::Ok();
    const auto declared = static_cast<int>(type_.shape->size());
    if (rank == declared) return Status::Ok();
    if (rank + 1 == declared && (!target_.options.by_row || rank > 0)) return Status::Ok();
    return InvalidArgument(StrCat("input '", target_.input, "' has ", rank,
                                  " levels of nesting, expected ", ToString(type_)));
  }

  const ValueType& type_;
  const Target& target_;
  Elements<T> elements_;
  int rank_ = kUnknown;
  std::array<int64_t, kMaxRank> lengths_;
};

// Rows one after another, however nested.
template <typename T>
Status AppendRows(JsonValue json, int depth, const Target& target, Elements<T>& elements) {
  const Holds holds = HoldsOf(json);
  if (holds == Holds::kNoArray) return Uneven(target.input);
  if (depth == target.max_axes()) return TooDeep(target);
  JsonArray array;
  ONNXD_RETURN_IF_ERROR(JsonStatus(json.get_array().get(array)));
  if (holds == Holds::kElements) return elements.AppendRow(array);
  return ForEachElement(
      array, [&](JsonValue element) { return AppendRows(element, depth + 1, target, elements); });
}

// Calls body.operator()<T>() for types that have a JSON form.
template <typename Body>
Result<Tensor> Dispatch(const Target& target, Body body) {
  switch (target.type) {
    case DataType::kFloat16:
      return body.template operator()<Float16>();
    case DataType::kBfloat16:
      return body.template operator()<Bfloat16>();
    case DataType::kBool:
      return body.template operator()<bool>();
    case DataType::kString:
      return body.template operator()<std::string>();
    default:
      break;
  }
  Result<Tensor> result = InvalidArgument(
      StrCat("input '", target.input, "': type ", DataTypeName(target.type), " has no JSON form"));
  DispatchNumber(target.type, [&]<typename T>() { result = body.template operator()<T>(); });
  return result;
}

}  // namespace

Result<Tensor> TensorFromNested(JsonValue json, const ValueType& type, const std::string& input,
                                int64_t expected, const JsonTensorOptions& options) {
  const Target target{type.element, input, options};
  return Dispatch(target,
                  [&]<typename T>() { return NestedReader<T>(type, target).Read(json, expected); });
}

Result<Tensor> TensorFromData(JsonValue json, DataType type, const Shape& shape,
                              const std::string& input, int64_t max_elements,
                              const JsonTensorOptions& options) {
  ONNXD_RETURN_IF_ERROR(shape.Validate().WithContext(StrCat("input '", input, "'")));
  const int64_t count = shape.ElementCount();
  if (count > max_elements) {
    return InvalidArgument(StrCat("input '", input, "' of shape ", shape.ToString(),
                                  " has more elements than the request can hold"));
  }
  const Target target{type, input, options};
  return Dispatch(target, [&]<typename T>() -> Result<Tensor> {
    if (HoldsOf(json) == Holds::kNoArray) {
      return InvalidArgument(StrCat("input '", input, "': data must be an array"));
    }
    Elements<T> elements(target);
    ONNXD_RETURN_IF_ERROR(elements.Reserve(count));
    elements.Fix();
    ONNXD_RETURN_IF_ERROR(AppendRows(json, 0, target, elements));
    if (elements.count() == count) return elements.Take(shape);
    return InvalidArgument(StrCat("input '", input, "' has ", elements.count(),
                                  " elements, its shape ", shape.ToString(), " needs ", count));
  });
}

}  // namespace onnxd
