#include "server/inference/binary_tensor.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

Result<Tensor> StringsFromBytes(std::string_view bytes, const Shape& shape,
                                const std::string& input) {
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat("input '", input, "': ", why));
  };
  const int64_t count = shape.ElementCount();
  // Each element takes four bytes at least: the count is checked before memory is taken.
  if (count > static_cast<int64_t>(bytes.size() / 4)) {
    return fail(StrCat(bytes.size(), " bytes cannot hold ", count, " BYTES elements"));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(DataType::kString, shape));
  for (int64_t i = 0; i < count; ++i) {
    uint32_t length;
    if (bytes.size() < sizeof(length)) return fail("a BYTES element is truncated");
    std::memcpy(&length, bytes.data(), sizeof(length));
    bytes.remove_prefix(sizeof(length));
    if (length > bytes.size()) return fail("a BYTES element runs beyond the end");
    tensor.mutable_data<std::string>()[i] = std::string(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  if (!bytes.empty()) return fail(StrCat(bytes.size(), " bytes are left over"));
  return tensor;
}

}  // namespace

Result<Tensor> TensorFromBytes(std::string_view bytes, const std::shared_ptr<void>& owner,
                               DataType type, const Shape& shape, const std::string& input) {
  ONNXD_RETURN_IF_ERROR(shape.Validate().WithContext(StrCat("input '", input, "'")));
  if (type == DataType::kString) return StringsFromBytes(bytes, shape, input);
  const auto wanted = TensorBytes(type, shape.ElementCount());
  if (!wanted || static_cast<size_t>(*wanted) != bytes.size()) {
    return InvalidArgument(StrCat("input '", input, "': ", bytes.size(), " bytes for ",
                                  Describe(type, shape), ", which has ", wanted.value_or(-1)));
  }
  if (type == DataType::kBool &&
      std::any_of(bytes.begin(), bytes.end(), [](char c) { return c != 0 && c != 1; })) {
    return InvalidArgument(StrCat("input '", input, "': a BOOL byte is neither 0 nor 1"));
  }
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % kTensorAlignment == 0;
  if (owner != nullptr && aligned) {
    return Tensor::Wrap(type, shape, const_cast<char*>(bytes.data()), owner);
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(type, shape));
  if (!bytes.empty()) std::memcpy(tensor.mutable_raw(), bytes.data(), bytes.size());
  return tensor;
}

size_t SizeOfTensorBytes(const Tensor& tensor) {
  if (tensor.type() != DataType::kString) return tensor.bytes();
  size_t size = 0;
  for (const std::string& text : tensor.elements<std::string>()) {
    size += sizeof(uint32_t) + text.size();
  }
  return size;
}

void AppendTensorBytes(std::string& out, const Tensor& tensor) {
  if (tensor.type() != DataType::kString) {
    out.append(static_cast<const char*>(tensor.raw()), tensor.bytes());
    return;
  }
  for (const std::string& text : tensor.elements<std::string>()) {
    const auto length = static_cast<uint32_t>(text.size());
    out.append(reinterpret_cast<const char*>(&length), sizeof(length));
    out += text;
  }
}

}  // namespace onnxd
