#include "runtime/format/tensor_reader.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <vector>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// The fields of one TensorProto as they come.
struct RawTensor {
  std::string name;
  std::vector<int64_t> dims;
  int64_t data_type = 0;
  bool has_raw = false;
  uint64_t raw_begin = 0, raw_end = 0;
  std::vector<uint32_t> float_data;
  std::vector<int64_t> int32_data, int64_data;
  std::vector<uint64_t> double_data;
  std::vector<int64_t> uint64_data;
  std::vector<std::string> string_data;
  std::vector<std::pair<std::string, std::string>> external;
  int64_t data_location = 0;
};

Status ReadExternalEntry(WireReader& reader, uint64_t end,
                         std::vector<std::pair<std::string, std::string>>& entries) {
  std::string key, value;
  while (!reader.AtEnd(end)) {
    ONNXD_ASSIGN_OR_RETURN(const WireField field, reader.NextField(end));
    if (field.number == 1 && field.type == WireType::kBytes) {
      ONNXD_ASSIGN_OR_RETURN(key, reader.Text(end));
    } else if (field.number == 2 && field.type == WireType::kBytes) {
      ONNXD_ASSIGN_OR_RETURN(value, reader.Text(end));
    } else {
      ONNXD_RETURN_IF_ERROR(reader.Skip(field, end));
    }
  }
  entries.emplace_back(std::move(key), std::move(value));
  return Status::Ok();
}

Status ReadTensorField(WireReader& reader, WireField field, uint64_t end, RawTensor& tensor) {
  switch (field.number) {
    case 1:
      return reader.Varints(field, end, tensor.dims);
    case 2: {
      ONNXD_RETURN_IF_ERROR(reader.Expect(field, WireType::kVarint));
      ONNXD_ASSIGN_OR_RETURN(const uint64_t type, reader.Varint(end));
      tensor.data_type = static_cast<int64_t>(type);
      return Status::Ok();
    }
    case 4:
      return reader.Fixed32s(field, end, tensor.float_data);
    case 5:
      return reader.Varints(field, end, tensor.int32_data);
    case 6: {
      ONNXD_RETURN_IF_ERROR(reader.Expect(field, WireType::kBytes));
      ONNXD_ASSIGN_OR_RETURN(std::string text, reader.Text(end));
      tensor.string_data.push_back(std::move(text));
      return Status::Ok();
    }
    case 7:
      return reader.Varints(field, end, tensor.int64_data);
    case 8: {
      ONNXD_RETURN_IF_ERROR(reader.Expect(field, WireType::kBytes));
      ONNXD_ASSIGN_OR_RETURN(tensor.name, reader.Text(end));
      return Status::Ok();
    }
    case 9: {
      ONNXD_RETURN_IF_ERROR(reader.Expect(field, WireType::kBytes));
      ONNXD_ASSIGN_OR_RETURN(tensor.raw_end, reader.Enter(end));
      tensor.raw_begin = reader.position();
      tensor.has_raw = true;
      reader.MoveTo(tensor.raw_end);
      return Status::Ok();
    }
    case 10:
      return reader.Fixed64s(field, end, tensor.double_data);
    case 11:
      return reader.Varints(field, end, tensor.uint64_data);
    case 13: {
      ONNXD_RETURN_IF_ERROR(reader.Expect(field, WireType::kBytes));
      ONNXD_ASSIGN_OR_RETURN(const uint64_t stop, reader.Enter(end));
      return ReadExternalEntry(reader, stop, tensor.external);
    }
    case 14: {
      ONNXD_RETURN_IF_ERROR(reader.Expect(field, WireType::kVarint));
      ONNXD_ASSIGN_OR_RETURN(const uint64_t location, reader.Varint(end));
      tensor.data_location = static_cast<int64_t>(location);
      return Status::Ok();
    }
    default:
      return reader.Skip(field, end);
  }
}

Result<uint64_t> ParseUnsigned(std::string_view key, std::string_view text) {
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value > (uint64_t{1} << 62)) {
    return InvalidArgument(
        StrCat("external data ", key, " '", text.substr(0, 32), "' is not a valid number"));
  }
  return value;
}

Result<Initializer> ReadExternal(const RawTensor& tensor, DataType type, const Shape& shape,
                                 uint64_t bytes, ExternalData& external) {
  if (!external.allowed) {
    return InvalidArgument("external data is refused for a model that is not a file");
  }
  std::string location;
  uint64_t offset = 0, length = bytes;
  for (const auto& [key, value] : tensor.external) {
    if (key == "location") {
      location = value;
    } else if (key == "offset") {
      ONNXD_ASSIGN_OR_RETURN(offset, ParseUnsigned(key, value));
    } else if (key == "length") {
      ONNXD_ASSIGN_OR_RETURN(length, ParseUnsigned(key, value));
    } else if (key != "checksum" && key != "basepath") {
      return InvalidArgument(StrCat("unknown external data key '", key.substr(0, 32), "'"));
    }
  }
  if (length != bytes) {
    return InvalidArgument(
        StrCat("external data has ", length, " bytes, the tensor needs ", bytes));
  }
  auto& file = external.files[location];
  if (file == nullptr) {
    ONNXD_ASSIGN_OR_RETURN(file, OpenFileBeneath(external.directory, location));
  }
  if (offset > file->size() || length > file->size() - offset) {
    return InvalidArgument(StrCat("external data range ", offset, "+", length,
                                  " is outside its file of ", file->size(), " bytes"));
  }
  return Initializer(type, shape, file, offset);
}

// Copies `values` narrowed to `width` bytes each, little-endian.
template <typename T>
void StoreNarrowed(const std::vector<T>& values, size_t width, std::byte* out) {
  for (const T value : values) {
    std::memcpy(out, &value, width);
    out += width;
  }
}

void PackSmall(const std::vector<int64_t>& packed_bytes, std::byte* out) {
  for (const int64_t value : packed_bytes) *out++ = static_cast<std::byte>(value & 0xff);
}

Status CountMismatch(size_t got, int64_t wanted) {
  return InvalidArgument(StrCat("it holds ", got, " elements, its dimensions need ", wanted));
}

Result<Initializer> ReadTyped(const RawTensor& raw, DataType type, const Shape& shape) {
  const int64_t count = shape.ElementCount();
  const auto matches = [&](size_t got) { return static_cast<int64_t>(got) == count; };
  // The count is checked before the tensor is made, so that dimensions alone allocate nothing.
  const int bits = DataTypeBits(type);
  size_t got = 0;
  bool packed_small = false;
  switch (type) {
    case DataType::kString:
      got = raw.string_data.size();
      break;
    case DataType::kFloat:
      got = raw.float_data.size();
      break;
    case DataType::kComplex64:
      got = raw.float_data.size() / 2;
      break;
    case DataType::kDouble:
      got = raw.double_data.size();
      break;
    case DataType::kComplex128:
      got = raw.double_data.size() / 2;
      break;
    case DataType::kInt64:
      got = raw.int64_data.size();
      break;
    case DataType::kUint64:
    case DataType::kUint32:
      got = raw.uint64_data.size();
      break;
    default:
      got = raw.int32_data.size();
      packed_small = bits < 8;
  }
  if (packed_small) {
    if (static_cast<int64_t>(got) != TensorBytes(type, count)) return CountMismatch(got, count);
  } else if (!matches(got)) {
    return CountMismatch(got, count);
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(type, shape));
  auto* out = static_cast<std::byte*>(tensor.mutable_raw());
  switch (type) {
    case DataType::kString:
      std::copy(raw.string_data.begin(), raw.string_data.end(), tensor.mutable_data<std::string>());
      break;
    case DataType::kFloat:
    case DataType::kComplex64:
      StoreNarrowed(raw.float_data, 4, out);
      break;
    case DataType::kDouble:
    case DataType::kComplex128:
      StoreNarrowed(raw.double_data, 8, out);
      break;
    case DataType::kInt64:
      StoreNarrowed(raw.int64_data, 8, out);
      break;
    case DataType::kUint64:
      StoreNarrowed(raw.uint64_data, 8, out);
      break;
    case DataType::kUint32:
      StoreNarrowed(raw.uint64_data, 4, out);
      break;
    default:
      if (packed_small) {
        PackSmall(raw.int32_data, out);
      } else {
        StoreNarrowed(raw.int32_data, static_cast<size_t>(bits / 8), out);
      }
  }
  return Initializer(std::move(tensor));
}

Result<Initializer> ToInitializer(const RawTensor& raw, WireReader& reader,
                                  ExternalData& external) {
  if (!IsDataType(raw.data_type)) {
    return InvalidArgument(StrCat("unknown data type ", raw.data_type));
  }
  const auto type = static_cast<DataType>(raw.data_type);
  Shape shape(raw.dims);
  ONNXD_RETURN_IF_ERROR(shape.Validate());
  const auto bytes = TensorBytes(type, shape.ElementCount());
  if (!bytes) return InvalidArgument("its size overflows");
  if (raw.data_location == 1) {
    if (type == DataType::kString) return InvalidArgument("strings cannot be external data");
    return ReadExternal(raw, type, shape, static_cast<uint64_t>(*bytes), external);
  }
  if (!raw.has_raw) return ReadTyped(raw, type, shape);
  const bool typed = !raw.float_data.empty() || !raw.double_data.empty() ||
                     !raw.int32_data.empty() || !raw.int64_data.empty() ||
                     !raw.uint64_data.empty() || !raw.string_data.empty();
  if (typed && *bytes > 0) return InvalidArgument("it has both raw and typed data");
  if (type == DataType::kString) return InvalidArgument("strings cannot be raw data");
  if (raw.raw_end - raw.raw_begin != static_cast<uint64_t>(*bytes)) {
    return InvalidArgument(StrCat("raw data has ", raw.raw_end - raw.raw_begin, " bytes, ",
                                  Describe(type, shape), " needs ", *bytes));
  }
  return Initializer(type, shape, reader.source(), raw.raw_begin);
}

}  // namespace

Result<std::pair<std::string, Initializer>> ReadTensor(WireReader& reader, uint64_t end,
                                                       ExternalData& external) {
  ONNXD_RETURN_IF_ERROR(reader.budget().Charge(256));
  RawTensor raw;
  while (!reader.AtEnd(end)) {
    ONNXD_ASSIGN_OR_RETURN(const WireField field, reader.NextField(end));
    ONNXD_RETURN_IF_ERROR(ReadTensorField(reader, field, end, raw));
  }
  auto initializer = ToInitializer(raw, reader, external);
  if (!initializer.ok()) {
    return initializer.status().WithContext(StrCat("tensor '", raw.name, "'"));
  }
  return std::pair(std::move(raw.name), std::move(*initializer));
}

Result<std::pair<std::string, Initializer>> ReadSparseTensor(WireReader& reader, uint64_t end,
                                                             ExternalData& external) {
  std::pair<std::string, Initializer> values, indices;
  std::vector<int64_t> dims;
  while (!reader.AtEnd(end)) {
    ONNXD_ASSIGN_OR_RETURN(const WireField field, reader.NextField(end));
    if (field.number == 1 || field.number == 2) {
      ONNXD_RETURN_IF_ERROR(reader.Expect(field, WireType::kBytes));
      ONNXD_ASSIGN_OR_RETURN(const uint64_t stop, reader.Enter(end));
      ONNXD_ASSIGN_OR_RETURN((field.number == 1 ? values : indices),
                             ReadTensor(reader, stop, external));
    } else if (field.number == 3) {
      ONNXD_RETURN_IF_ERROR(reader.Varints(field, end, dims));
    } else {
      ONNXD_RETURN_IF_ERROR(reader.Skip(field, end));
    }
  }
  const std::string context = StrCat("sparse tensor '", values.first, "'");
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat(context, ": ", why));
  };
  Shape shape(dims);
  ONNXD_RETURN_IF_ERROR(shape.Validate().WithContext(context));
  if (!values.second.defined() || values.second.shape().rank() != 1) return fail("no values");
  if (values.second.type() == DataType::kString || DataTypeBits(values.second.type()) < 8) {
    return fail("values of this type are not supported");
  }
  const int64_t count = values.second.shape()[0];
  const bool linear = indices.second.defined() && indices.second.shape() == Shape{count};
  if (count > 0 && !linear &&
      !(indices.second.defined() && indices.second.shape() == Shape{count, shape.rank()})) {
    return fail("indices do not match the values");
  }
  if (indices.second.defined() && indices.second.type() != DataType::kInt64) {
    return fail("indices are not int64");
  }
  const auto bytes = TensorBytes(values.second.type(), shape.ElementCount());
  if (!bytes) return fail("its size overflows");
  ONNXD_RETURN_IF_ERROR(reader.budget().Charge(*bytes).WithContext(context));
  ONNXD_ASSIGN_OR_RETURN(Tensor dense, Tensor::Create(values.second.type(), shape));
  std::memset(dense.mutable_raw(), 0, dense.bytes());
  ONNXD_ASSIGN_OR_RETURN(const Tensor value_tensor, values.second.Materialize());
  Tensor index_tensor;
  if (count > 0) {
    ONNXD_ASSIGN_OR_RETURN(index_tensor, indices.second.Materialize());
  }
  const auto width = static_cast<size_t>(DataTypeBits(dense.type()) / 8);
  int64_t last = -1;
  for (int64_t i = 0; i < count; ++i) {
    int64_t flat = linear ? index_tensor.data<int64_t>()[i] : 0;
    if (!linear) {
      for (int axis = 0; axis < shape.rank(); ++axis) {
        const int64_t index = index_tensor.data<int64_t>()[i * shape.rank() + axis];
        if (index < 0 || index >= shape[axis]) return fail("an index is out of range");
        flat = flat * shape[axis] + index;
      }
    }
    if (flat < 0 || flat >= shape.ElementCount()) return fail("an index is out of range");
    if (flat <= last) return fail("the indices are not in rising order");
    last = flat;
    std::memcpy(static_cast<std::byte*>(dense.mutable_raw()) + static_cast<size_t>(flat) * width,
                static_cast<const std::byte*>(value_tensor.raw()) + static_cast<size_t>(i) * width,
                width);
  }
  return std::pair(std::move(values.first), Initializer(std::move(dense)));
}

}  // namespace onnxd
