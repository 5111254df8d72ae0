#include "server/grpc/tensor_messages.h"

#include <utility>

#include "runtime/base/str_cat.h"
#include "server/inference/binary_tensor.h"
#include "server/inference/data_type_name.h"

namespace onnxd {
namespace {

Status Fail(const std::string& input, std::string_view why) {
  return InvalidArgument(StrCat("input '", input, "': ", why));
}

template <typename Dims>
Result<Shape> ShapeOf(const Dims& dims, const std::string& input) {
  if (dims.size() > kMaxRank) return Fail(input, "the shape has too many dimensions");
  Shape shape(std::vector<int64_t>(dims.begin(), dims.end()));
  ONNXD_RETURN_IF_ERROR(shape.Validate().WithContext(StrCat("input '", input, "'")));
  return shape;
}

// Copies a repeated field into a tensor, checking count and range.
template <typename T, typename Repeated>
Result<Tensor> FromRepeated(const Repeated& values, DataType type, const Shape& shape,
                            const std::string& input) {
  if (static_cast<int64_t>(values.size()) != shape.ElementCount()) {
    return Fail(input, StrCat(static_cast<int64_t>(values.size()), " elements for shape ",
                              shape.ToString()));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(type, shape));
  int64_t i = 0;
  for (const auto& value : values) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (!std::in_range<T>(value)) return Fail(input, StrCat("element ", i, " is out of range"));
    }
    tensor.mutable_data<T>()[i++] = static_cast<T>(value);
  }
  return tensor;
}

Result<Tensor> FromContents(const inference::InferTensorContents& contents, DataType type,
                            const Shape& shape, const std::string& input) {
  switch (type) {
    case DataType::kBool:
      return FromRepeated<bool>(contents.bool_contents(), type, shape, input);
    case DataType::kInt8:
      return FromRepeated<int8_t>(contents.int_contents(), type, shape, input);
    case DataType::kInt16:
      return FromRepeated<int16_t>(contents.int_contents(), type, shape, input);
    case DataType::kInt32:
      return FromRepeated<int32_t>(contents.int_contents(), type, shape, input);
    case DataType::kInt64:
      return FromRepeated<int64_t>(contents.int64_contents(), type, shape, input);
    case DataType::kUint8:
      return FromRepeated<uint8_t>(contents.uint_contents(), type, shape, input);
    case DataType::kUint16:
      return FromRepeated<uint16_t>(contents.uint_contents(), type, shape, input);
    case DataType::kUint32:
      return FromRepeated<uint32_t>(contents.uint_contents(), type, shape, input);
    case DataType::kUint64:
      return FromRepeated<uint64_t>(contents.uint64_contents(), type, shape, input);
    case DataType::kFloat:
      return FromRepeated<float>(contents.fp32_contents(), type, shape, input);
    case DataType::kDouble:
      return FromRepeated<double>(contents.fp64_contents(), type, shape, input);
    case DataType::kString:
      return FromRepeated<std::string>(contents.bytes_contents(), type, shape, input);
    default:
      return Fail(input, "this datatype exists only as raw contents");
  }
}

template <typename T, typename Add>
void ForElements(const Tensor& tensor, Add add) {
  for (const T& value : tensor.elements<T>()) add(value);
}

}  // namespace

namespace {

using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

std::optional<uint64_t> NumberIn(const Parameters& parameters, const char* name) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return std::nullopt;
  const inference::InferParameter& parameter = found->second;
  if (parameter.has_uint64_param()) return parameter.uint64_param();
  if (!parameter.has_int64_param() || parameter.int64_param() < 0) return std::nullopt;
  return static_cast<uint64_t>(parameter.int64_param());
}

// nullopt: not in shared memory.
Result<std::optional<SharedMemoryRange>> RangeIn(const Parameters& parameters,
                                                 const std::string& tensor) {
  const auto region = parameters.find("shared_memory_region");
  if (region == parameters.end()) return std::optional<SharedMemoryRange>();
  const auto bytes = NumberIn(parameters, "shared_memory_byte_size");
  if (!region->second.has_string_param() || !bytes) {
    return Fail(tensor,
                "shared memory needs the parameters shared_memory_region, text, and "
                "shared_memory_byte_size, a number");
  }
  const uint64_t offset = NumberIn(parameters, "shared_memory_offset").value_or(0);
  return std::optional(SharedMemoryRange{region->second.string_param(), offset, *bytes});
}

}  // namespace

Result<std::vector<NamedValue>> InputsOf(const inference::ModelInferRequest& request,
                                         const SharedMemory& memory) {
  const bool raw = request.raw_input_contents_size() > 0;
  int next_raw = 0;  // the entries are of those inputs, in order, that are not in shared memory
  std::vector<NamedValue> inputs;
  for (const auto& input : request.inputs()) {
    const auto type = DataTypeFromProtocolName(input.datatype());
    if (!type) {
      return Fail(input.name(), StrCat("unknown datatype '", input.datatype().substr(0, 32), "'"));
    }
    ONNXD_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(input.shape(), input.name()));
    ONNXD_ASSIGN_OR_RETURN(const auto range, RangeIn(input.parameters(), input.name()));
    if ((raw || range) && input.has_contents()) {
      return Fail(input.name(), "it has contents beside raw contents or shared memory");
    }
    Result<Tensor> tensor = Tensor();
    if (range) {
      tensor = TensorFromSharedMemory(memory, *range, *type, shape, input.name());
    } else if (!raw) {
      tensor = FromContents(input.contents(), *type, shape, input.name());
    } else if (next_raw < request.raw_input_contents_size()) {
      tensor = TensorFromBytes(request.raw_input_contents(next_raw++), nullptr, *type, shape,
                               input.name());
    } else {
      return Fail(input.name(), "it has no raw contents");
    }
    if (!tensor.ok()) return tensor.status();
    inputs.push_back({input.name(), *std::move(tensor)});
  }
  if (raw && next_raw != request.raw_input_contents_size()) {
    return InvalidArgument(
        StrCat(request.raw_input_contents_size(), " raw contents for ", next_raw, " inputs"));
  }
  return inputs;
}

Result<std::vector<OutputForm>> OutputFormsOf(const inference::ModelInferRequest& request) {
  std::vector<OutputForm> forms;
  for (const auto& output : request.outputs()) {
    OutputForm& form = forms.emplace_back();
    ONNXD_ASSIGN_OR_RETURN(form.shared_memory, RangeIn(output.parameters(), output.name()));
    if (output.parameters().contains("classification")) {
      form.classification = static_cast<int64_t>(std::min<uint64_t>(
          NumberIn(output.parameters(), "classification").value_or(0), uint64_t{1} << 40));
    }
  }
  return forms;
}

Result<Tensor> TensorOf(const v1::Tensor& message, DataType type) {
  const std::string& name = message.name();
  if (!message.datatype().empty()) {
    const auto stated = DataTypeFromProtocolName(message.datatype());
    if (!stated) {
      return Fail(name, StrCat("unknown datatype '", message.datatype().substr(0, 32), "'"));
    }
    type = *stated;
  }
  ONNXD_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(message.shape(), name));
  if (!message.raw().empty()) return TensorFromBytes(message.raw(), nullptr, type, shape, name);
  switch (type) {
    case DataType::kFloat:
      return FromRepeated<float>(message.float_values(), type, shape, name);
    case DataType::kDouble:
      return FromRepeated<double>(message.float_values(), type, shape, name);
    case DataType::kInt8:
      return FromRepeated<int8_t>(message.int_values(), type, shape, name);
    case DataType::kUint8:
      return FromRepeated<uint8_t>(message.int_values(), type, shape, name);
    case DataType::kInt16:
      return FromRepeated<int16_t>(message.int_values(), type, shape, name);
    case DataType::kUint16:
      return FromRepeated<uint16_t>(message.int_values(), type, shape, name);
    case DataType::kInt32:
      return FromRepeated<int32_t>(message.int_values(), type, shape, name);
    case DataType::kUint32:
      return FromRepeated<uint32_t>(message.int_values(), type, shape, name);
    case DataType::kInt64:
      return FromRepeated<int64_t>(message.int_values(), type, shape, name);
    case DataType::kUint64:
      return FromRepeated<uint64_t>(message.uint_values(), type, shape, name);
    case DataType::kBool:
      return FromRepeated<bool>(message.int_values(), type, shape, name);
    case DataType::kString:
      return FromRepeated<std::string>(message.bytes_values(), type, shape, name);
    case DataType::kFloat16:
    case DataType::kBfloat16: {
      ONNXD_ASSIGN_OR_RETURN(const Tensor wide, FromRepeated<float>(message.float_values(),
                                                                    DataType::kFloat, shape, name));
      ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(type, shape));
      for (int64_t i = 0; i < wide.ElementCount(); ++i) {
        const float value = wide.data<float>()[i];
        if (type == DataType::kFloat16) {
          tensor.mutable_data<Float16>()[i] = Float16(value);
        } else {
          tensor.mutable_data<Bfloat16>()[i] = Bfloat16(value);
        }
      }
      return tensor;
    }
    default:
      return Fail(name, "this datatype is not supported");
  }
}

Status ToMessage(const NamedValue& output, v1::Tensor& message) {
  if (!output.value.is_tensor()) {
    return Unimplemented(StrCat("output '", output.name,
                                "' is a sequence or map, which gRPC answers cannot carry; "
                                "request other outputs, or use REST"));
  }
  const Tensor& tensor = output.value.tensor();
  message.set_name(output.name);
  message.set_datatype(std::string(ProtocolTypeName(tensor.type())));
  for (const int64_t dim : tensor.shape()) message.add_shape(dim);
  const auto real = [&](auto value) { message.add_float_values(static_cast<double>(value)); };
  const auto half = [&](auto value) { real(static_cast<float>(value)); };
  const auto whole = [&](auto value) { message.add_int_values(static_cast<int64_t>(value)); };
  switch (tensor.type()) {
    case DataType::kFloat:
      ForElements<float>(tensor, real);
      break;
    case DataType::kDouble:
      ForElements<double>(tensor, real);
      break;
    case DataType::kFloat16:
      ForElements<Float16>(tensor, half);
      break;
    case DataType::kBfloat16:
      ForElements<Bfloat16>(tensor, half);
      break;
    case DataType::kInt8:
      ForElements<int8_t>(tensor, whole);
      break;
    case DataType::kUint8:
      ForElements<uint8_t>(tensor, whole);
      break;
    case DataType::kInt16:
      ForElements<int16_t>(tensor, whole);
      break;
    case DataType::kUint16:
      ForElements<uint16_t>(tensor, whole);
      break;
    case DataType::kInt32:
      ForElements<int32_t>(tensor, whole);
      break;
    case DataType::kUint32:
      ForElements<uint32_t>(tensor, whole);
      break;
    case DataType::kInt64:
      ForElements<int64_t>(tensor, whole);
      break;
    case DataType::kBool:
      ForElements<bool>(tensor, whole);
      break;
    case DataType::kUint64:
      ForElements<uint64_t>(tensor, [&](uint64_t value) { message.add_uint_values(value); });
      break;
    case DataType::kString:
      ForElements<std::string>(tensor, [&](const std::string& t) { message.add_bytes_values(t); });
      break;
    default:
      return Unimplemented(StrCat("output '", output.name, "' of type ",
                                  DataTypeName(tensor.type()), " has no message form"));
  }
  return Status::Ok();
}

}  // namespace onnxd
