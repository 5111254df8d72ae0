#include "tools/test_case.h"

#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "runtime/format/value_file.h"
#include "server/inference/compare_values.h"

namespace onnxd {
namespace {

constexpr uint64_t kMaxValueBytes = uint64_t{2} << 30;

std::string PathOf(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

Result<Value> ReadValueFile(const std::string& path, const ValueType& type) {
  ONNXD_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kMaxValueBytes));
  auto value = ParseValue(std::move(bytes), type);
  if (!value.ok()) return value.status().WithContext(path);
  return value;
}

// kind: "input" or "output".
Result<Value> ReadOne(const std::string& folder, const char* kind, size_t index,
                      const TensorSignature& signature) {
  const std::string by_position = PathOf(folder, StrCat(kind, "_", index, ".pb"));
  if (std::filesystem::exists(by_position)) return ReadValueFile(by_position, signature.type);
  const std::string by_name = PathOf(folder, StrCat(signature.name, ".npy"));
  auto bytes = ReadFile(by_name, kMaxValueBytes);
  if (!bytes.ok()) {
    return NotFound(StrCat("no file for ", kind, " '", signature.name, "': neither ", by_position,
                           " nor ", by_name));
  }
  auto tensor = ParseNpy(*bytes);
  if (!tensor.ok()) return tensor.status().WithContext(by_name);
  return Value(std::move(*tensor));
}

Result<std::vector<Value>> ReadAll(const std::string& folder, const char* kind,
                                   const std::vector<TensorSignature>& signatures) {
  std::vector<Value> values;
  for (size_t i = 0; i < signatures.size(); ++i) {
    auto value = ReadOne(folder, kind, i, signatures[i]);
    if (!value.ok()) return value.status();
    values.push_back(std::move(*value));
  }
  return values;
}

}  // namespace

Result<std::vector<Value>> ReadInputs(const std::string& folder, const InferenceSession& session) {
  return ReadAll(folder, "input", session.inputs());
}

Result<std::vector<Value>> ReadOutputs(const std::string& folder, const InferenceSession& session) {
  return ReadAll(folder, "output", session.outputs());
}

Status CompareOutputs(const std::string& folder, const InferenceSession& session,
                      const std::vector<Value>& outputs, double relative, double absolute) {
  ONNXD_ASSIGN_OR_RETURN(const auto wanted, ReadOutputs(folder, session));
  for (size_t i = 0; i < outputs.size(); ++i) {
    ONNXD_RETURN_IF_ERROR(CompareValues(outputs[i], wanted[i], relative, absolute)
                              .WithContext(StrCat("output '", session.outputs()[i].name, "'")));
  }
  return Status::Ok();
}

Status WriteOutputs(const std::string& folder, const std::vector<Value>& outputs) {
  std::filesystem::create_directories(folder);
  for (size_t i = 0; i < outputs.size(); ++i) {
    ONNXD_ASSIGN_OR_RETURN(const std::string bytes, SerializeValue(outputs[i]));
    ONNXD_RETURN_IF_ERROR(WriteFile(PathOf(folder, StrCat("output_", i, ".pb")), bytes));
  }
  return Status::Ok();
}

}  // namespace onnxd
