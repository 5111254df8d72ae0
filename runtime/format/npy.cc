#include <charconv>
#include <cstring>
#include <map>

#include "runtime/base/str_cat.h"
#include "runtime/format/value_file.h"

namespace onnxd {
namespace {

const std::map<std::string_view, DataType>& Types() {
  static const std::map<std::string_view, DataType> types = {
      {"|b1", DataType::kBool},      {"|i1", DataType::kInt8},       {"|u1", DataType::kUint8},
      {"<i2", DataType::kInt16},     {"<u2", DataType::kUint16},     {"<i4", DataType::kInt32},
      {"<u4", DataType::kUint32},    {"<i8", DataType::kInt64},      {"<u8", DataType::kUint64},
      {"<f2", DataType::kFloat16},   {"<f4", DataType::kFloat},      {"<f8", DataType::kDouble},
      {"<c8", DataType::kComplex64}, {"<c16", DataType::kComplex128}};
  return types;
}

// The text after `key` in the header dictionary.
std::string_view After(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + key.size());
  const size_t start = rest.find_first_not_of(" :");
  return start == std::string_view::npos ? std::string_view() : rest.substr(start);
}

}  // namespace

Result<Tensor> ParseNpy(std::string_view bytes) {
  const auto fail = [](std::string_view why) {
    return InvalidArgument(StrCat("not a usable .npy file: ", why));
  };
  if (bytes.size() < 12 || bytes.substr(0, 6) != "\x93NUMPY") return fail("bad magic");
  const int major = bytes[6];
  size_t length = static_cast<unsigned char>(bytes[8]) |
                  static_cast<size_t>(static_cast<unsigned char>(bytes[9])) << 8;
  size_t begin = 10;
  if (major >= 2) {
    length |= static_cast<size_t>(static_cast<unsigned char>(bytes[10])) << 16 |
              static_cast<size_t>(static_cast<unsigned char>(bytes[11])) << 24;
    begin = 12;
  }
  if (length > bytes.size() - begin) return fail("the header is truncated");
  const std::string_view header = bytes.substr(begin, length);
  const std::string_view data = bytes.substr(begin + length);
  std::string_view description = After(header, "'descr'");
  if (description.empty() || description[0] != '\'') return fail("no element type");
  description = description.substr(1, description.find('\'', 1) - 1);
  const auto type = Types().find(description);
  if (type == Types().end()) return fail(StrCat("element type '", description, "'"));
  if (After(header, "'fortran_order'").substr(0, 5) != "False") return fail("Fortran order");
  std::string_view list = After(header, "'shape'");
  if (list.empty() || list[0] != '(') return fail("no shape");
  list = list.substr(1, list.find(')') - 1);
  std::vector<int64_t> dims;
  while (!list.empty()) {
    const size_t start = list.find_first_not_of(" ,L");
    if (start == std::string_view::npos) break;
    list.remove_prefix(start);
    int64_t dim = -1;
    const auto [stop, error] = std::from_chars(list.data(), list.data() + list.size(), dim);
    if (error != std::errc()) return fail("bad shape");
    dims.push_back(dim);
    list.remove_prefix(static_cast<size_t>(stop - list.data()));
  }
  const Shape shape(dims);
  ONNXD_RETURN_IF_ERROR(shape.Validate());
  const auto wanted = TensorBytes(type->second, shape.ElementCount());
  if (!wanted || static_cast<size_t>(*wanted) != data.size()) {
    return fail(
        StrCat("it has ", data.size(), " bytes of data for ", Describe(type->second, shape)));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(type->second, shape));
  if (!data.empty()) std::memcpy(tensor.mutable_raw(), data.data(), data.size());
  return tensor;
}

Result<std::string> SerializeNpy(const Tensor& tensor) {
  std::string_view description;
  for (const auto& [name, type] : Types()) {
    if (type == tensor.type()) description = name;
  }
  if (description.empty()) {
    return Unimplemented(StrCat(".npy has no ", DataTypeName(tensor.type())));
  }
  std::string header = StrCat("{'descr': '", description, "', 'fortran_order': False, 'shape': (");
  for (const int64_t dim : tensor.shape()) header += StrCat(dim, ",");
  header += "), }";
  while ((header.size() + 11) % 64 != 0) header += ' ';
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  out.append(static_cast<const char*>(tensor.raw()), tensor.bytes());
  return out;
}

}  // namespace onnxd
