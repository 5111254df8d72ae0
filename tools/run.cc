// onnxd run MODEL --inputs DIR: computes the outputs for one set of inputs in files.
#include <cstdio>
#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "runtime/format/value_file.h"
#include "tools/command.h"
#include "tools/compare.h"

namespace onnxd {
namespace {

constexpr uint64_t kMaxValueBytes = uint64_t{2} << 30;

// input_K.pb by position, or NAME.npy.
Result<Value> ReadInput(const std::string& directory, size_t index,
                        const TensorSignature& signature) {
  const std::filesystem::path folder(directory);
  const std::string by_position = (folder / StrCat("input_", index, ".pb")).string();
  if (std::filesystem::exists(by_position)) {
    ONNXD_ASSIGN_OR_RETURN(std::string bytes, ReadFile(by_position, kMaxValueBytes));
    auto value = ParseValue(std::move(bytes), signature.type);
    if (!value.ok()) return value.status().WithContext(by_position);
    return value;
  }
  const std::string by_name = (folder / StrCat(signature.name, ".npy")).string();
  auto bytes = ReadFile(by_name, kMaxValueBytes);
  if (!bytes.ok()) {
    return NotFound(StrCat("no file for input '", signature.name, "': neither ", by_position,
                           " nor ", by_name));
  }
  auto tensor = ParseNpy(*bytes);
  if (!tensor.ok()) return tensor.status().WithContext(by_name);
  return Value(std::move(*tensor));
}

Status Compare(const RunFlags& flags, const InferenceSession& session,
               const std::vector<Value>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string path =
        (std::filesystem::path(flags.compare) / StrCat("output_", i, ".pb")).string();
    ONNXD_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kMaxValueBytes));
    auto wanted = ParseValue(std::move(bytes), session.outputs()[i].type);
    if (!wanted.ok()) return wanted.status().WithContext(path);
    ONNXD_RETURN_IF_ERROR(CompareValues(outputs[i], *wanted, flags.relative, flags.absolute)
                              .WithContext(StrCat("output '", session.outputs()[i].name, "'")));
  }
  std::printf("%zu outputs equal those in %s\n", outputs.size(), flags.compare.c_str());
  return Status::Ok();
}

Status RunModel(const RunFlags& flags) {
  ONNXD_ASSIGN_OR_RETURN(SessionOptions options, flags.session.ToOptions());
  ONNXD_ASSIGN_OR_RETURN(const auto session,
                         InferenceSession::Load(flags.model, std::move(options)));
  std::vector<Value> inputs;
  for (size_t i = 0; i < session->inputs().size(); ++i) {
    ONNXD_ASSIGN_OR_RETURN(Value value, ReadInput(flags.inputs, i, session->inputs()[i]));
    inputs.push_back(std::move(value));
  }
  ONNXD_ASSIGN_OR_RETURN(const auto outputs, session->Run(inputs, {}));
  if (!flags.outputs.empty()) {
    std::filesystem::create_directories(flags.outputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      ONNXD_ASSIGN_OR_RETURN(const std::string bytes, SerializeValue(outputs[i]));
      ONNXD_RETURN_IF_ERROR(WriteFile(
          (std::filesystem::path(flags.outputs) / StrCat("output_", i, ".pb")).string(), bytes));
    }
  }
  if (!flags.compare.empty()) return Compare(flags, *session, outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string what = outputs[i].is_tensor()
                                 ? Describe(outputs[i].tensor().type(), outputs[i].tensor().shape())
                                 : ToString(session->outputs()[i].type);
    std::printf("%s: %s\n", session->outputs()[i].name.c_str(), what.c_str());
  }
  return Status::Ok();
}

}  // namespace

int Run(const RunFlags& flags) {
  const Status status = RunModel(flags);
  return status.ok() ? kExitOk : Fail(status.WithContext(flags.model));
}

}  // namespace onnxd
