// onnxd run MODEL --inputs DIR: computes the outputs for one set of inputs in files.
#include <cstdio>

#include "runtime/base/str_cat.h"
#include "tools/command.h"
#include "tools/test_case.h"

namespace onnxd {
namespace {

Status RunModel(const RunFlags& flags) {
  ONNXD_ASSIGN_OR_RETURN(SessionOptions options, flags.session.ToOptions());
  ONNXD_ASSIGN_OR_RETURN(const auto session,
                         InferenceSession::Load(flags.model, std::move(options)));
  ONNXD_ASSIGN_OR_RETURN(const std::vector<Value> inputs, ReadInputs(flags.inputs, *session));
  ONNXD_ASSIGN_OR_RETURN(const auto outputs, session->Run(inputs, {}));
  ONNXD_RETURN_IF_ERROR(session->SaveToCache());
  if (!flags.outputs.empty()) ONNXD_RETURN_IF_ERROR(WriteOutputs(flags.outputs, outputs));
  if (!flags.compare.empty()) {
    ONNXD_RETURN_IF_ERROR(
        CompareOutputs(flags.compare, *session, outputs, flags.relative, flags.absolute));
    std::printf("%zu outputs equal those in %s\n", outputs.size(), flags.compare.c_str());
    return Status::Ok();
  }
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
