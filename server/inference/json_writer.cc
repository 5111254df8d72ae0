#include "server/inference/json_writer.h"

#include <charconv>
#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/type_dispatch.h"

namespace onnxd {
namespace {

// The length of the UTF-8 sequence at the front of `text`; 0 when it is malformed.
// Source: RFC 3629, section 4.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto tail = [&](size_t i, unsigned char low = 0x80, unsigned char high = 0xbf) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return tail(1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const unsigned char low = lead == 0xe0 ? 0xa0 : 0x80;
    const unsigned char high = lead == 0xed ? 0x9f : 0xbf;
    return tail(1, low, high) && tail(2) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const unsigned char low = lead == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xf4 ? 0x8f : 0xbf;
    return tail(1, low, high) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

void AppendNonFinite(std::string& out, double value, NonFiniteNumbers& non_finite) {
  ++non_finite.count;
  if (non_finite.form != NonFinite::kToken) {
    out += "null";
  } else {
    out += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  }
}

template <typename T>
void AppendNumber(std::string& out, T value, NonFiniteNumbers& non_finite) {
  if constexpr (std::is_same_v<T, bool>) {
    out += value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>) {
    AppendNumber(out, static_cast<float>(value), non_finite);
  } else {
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) return AppendNonFinite(out, value, non_finite);
      // Some readers take "-0" for an integer, which has no such zero.
      if (value == 0 && std::signbit(value)) {
        out += "-0.0";
        return;
      }
    }
    char buffer[32];
    out.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  }
}

// Calls body.operator()<T>() for the element type; false for types without a JSON form.
template <typename Body>
bool DispatchElement(DataType type, Body body) {
  switch (type) {
    case DataType::kFloat16:
      body.template operator()<Float16>();
      return true;
    case DataType::kBfloat16:
      body.template operator()<Bfloat16>();
      return true;
    case DataType::kBool:
      body.template operator()<bool>();
      return true;
    case DataType::kString:
      body.template operator()<std::string>();
      return true;
    default:
      return DispatchNumber(type, body);
  }
}

Status CheckWritable(const Tensor& tensor) {
  if (tensor.type() == DataType::kString) {
    for (const std::string& text : tensor.elements<std::string>()) {
      if (!IsUtf8(text)) return InvalidArgument("a string is not UTF-8: request binary output");
    }
  }
  if (!DispatchElement(tensor.type(), []<typename T>() {})) {
    return InvalidArgument(
        StrCat("elements of type ", DataTypeName(tensor.type()), " have no JSON form"));
  }
  return Status::Ok();
}

// Of what was written since there were `before`.
Status CheckFinite(const NonFiniteNumbers& non_finite, int64_t before) {
  if (non_finite.form != NonFinite::kError || non_finite.count == before) return Status::Ok();
  return Internal(
      "the answer holds NaN or an infinity, which JSON does not know (server.json_non_finite is "
      "error): request binary output");
}

template <typename T>
void AppendElement(std::string& out, const T& value, NonFiniteNumbers& non_finite) {
  if constexpr (std::is_same_v<T, std::string>) {
    AppendJsonString(out, value);
  } else {
    AppendNumber(out, value, non_finite);
  }
}

template <typename T>
const T* AppendAxis(std::string& out, const Shape& shape, int axis, const T* elements,
                    NonFiniteNumbers& non_finite) {
  if (axis == shape.rank()) {
    AppendElement(out, *elements, non_finite);
    return elements + 1;
  }
  out += '[';
  for (int64_t i = 0; i < shape[axis]; ++i) {
    if (i > 0) out += ',';
    elements = AppendAxis(out, shape, axis + 1, elements, non_finite);
  }
  out += ']';
  return elements;
}

Status AppendMap(std::string& out, const Map& map, NonFiniteNumbers& non_finite) {
  out += '{';
  for (size_t i = 0; i < map.values.size(); ++i) {
    if (i > 0) out += ',';
    if (const auto* ints = std::get_if<std::vector<int64_t>>(&map.keys)) {
      AppendJsonString(out, StrCat((*ints)[i]));
    } else {
      AppendJsonString(out, std::get<std::vector<std::string>>(map.keys)[i]);
    }
    out += ':';
    ONNXD_RETURN_IF_ERROR(AppendNested(out, map.values[i], non_finite));
  }
  out += '}';
  return Status::Ok();
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

void AppendJsonString(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text[0]);
    size_t length = 1;
    if (byte == '"' || byte == '\\') {
      out += '\\';
      out += text[0];
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else if (byte < 0x80) {
      out += text[0];
    } else if (length = SequenceLength(text); length > 0) {
      out += text.substr(0, length);
    } else {
      out += "\xef\xbf\xbd";
      length = 1;
    }
    text.remove_prefix(length);
  }
  out += '"';
}

Status AppendFlat(std::string& out, const Tensor& tensor, NonFiniteNumbers& non_finite) {
  const int64_t before = non_finite.count;
  ONNXD_RETURN_IF_ERROR(CheckWritable(tensor));
  out += '[';
  DispatchElement(tensor.type(), [&]<typename T>() {
    const T* elements = tensor.data<T>();
    for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
      if (i > 0) out += ',';
      AppendElement(out, elements[i], non_finite);
    }
  });
  out += ']';
  return CheckFinite(non_finite, before);
}

Status AppendNested(std::string& out, const Value& value, NonFiniteNumbers& non_finite) {
  const int64_t before = non_finite.count;
  if (value.is_tensor()) {
    const Tensor& tensor = value.tensor();
    ONNXD_RETURN_IF_ERROR(CheckWritable(tensor));
    DispatchElement(tensor.type(), [&]<typename T>() {
      AppendAxis(out, tensor.shape(), 0, tensor.data<T>(), non_finite);
    });
    return CheckFinite(non_finite, before);
  }
  if (const Sequence* sequence = value.sequence()) {
    out += '[';
    for (size_t i = 0; i < sequence->elements.size(); ++i) {
      if (i > 0) out += ',';
      ONNXD_RETURN_IF_ERROR(AppendNested(out, sequence->elements[i], non_finite));
    }
    out += ']';
    return Status::Ok();
  }
  if (const Map* map = value.map()) return AppendMap(out, *map, non_finite);
  if (const Optional* optional = value.optional(); optional && !optional->value.absent()) {
    return AppendNested(out, optional->value, non_finite);
  }
  out += "null";
  return Status::Ok();
}

}  // namespace onnxd
