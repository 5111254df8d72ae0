// onnxd optimize MODEL OUTPUT: saves the graph as the standard passes leave it.
#include <cstdio>

#include "runtime/base/file.h"
#include "runtime/format/model_reader.h"
#include "runtime/format/model_writer.h"
#include "runtime/ops/opset_selection.h"
#include "runtime/session/model_preparation.h"
#include "tools/command.h"

namespace onnxd {
namespace {

Status RunOptimize(const OptimizeFlags& flags) {
  ONNXD_ASSIGN_OR_RETURN(const SessionOptions options, flags.session.ToOptions());
  ONNXD_ASSIGN_OR_RETURN(Model model, ReadModelFile(flags.model));
  ONNXD_RETURN_IF_ERROR(CheckModel(model));
  const size_t before = model.graph.nodes.size();
  ONNXD_RETURN_IF_ERROR(PrepareModel(model, options, Stage::kOptimized));
  ONNXD_RETURN_IF_ERROR(SelectOpsets(model.graph, model.opsets));
  ONNXD_ASSIGN_OR_RETURN(const std::string bytes, WriteModel(model));
  ONNXD_RETURN_IF_ERROR(WriteFile(flags.output, bytes));
  std::printf("%s: %zu nodes became %zu\n", flags.output.c_str(), before, model.graph.nodes.size());
  return Status::Ok();
}

}  // namespace

int Optimize(const OptimizeFlags& flags) {
  const Status status = RunOptimize(flags);
  return status.ok() ? kExitOk : Fail(status.WithContext(flags.model));
}

}  // namespace onnxd
