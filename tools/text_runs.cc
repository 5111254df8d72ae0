#include "tools/text_runs.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "server/generation/decoder_rows.h"
#include "server/generation/joining_trial.h"

namespace onnxd {
namespace {

constexpr const char* kTokens = "input_ids";
// A device's recording is made in the second one.
constexpr int kSteps = 3;

Status RunText(const DecoderPlan& plan, const InferenceSession& session, const Shape& shape) {
  if (shape.rank() != 2 || shape[0] < 1 || shape[1] < 1) {
    return InvalidArgument(StrCat("--profile ", kTokens, " of shape ", shape.ToString(),
                                  ", expected SEQUENCESxTOKENS"));
  }
  RunOptions options;
  options.outputs_on_device = plan.OutputsOnDevice();
  ONNXD_ASSIGN_OR_RETURN(const DecoderState none, EmptyState(plan));
  const std::vector<int64_t> prompt(static_cast<size_t>(shape[1]), 1);
  ONNXD_ASSIGN_OR_RETURN(const auto inputs, PromptInputs(plan, none, prompt));
  ONNXD_ASSIGN_OR_RETURN(const auto outputs, session.Run(inputs, options));
  ONNXD_ASSIGN_OR_RETURN(const DecoderState state, StateAfter(plan, outputs, shape[1]));
  const bool joins = plan.joining != DecoderPlan::Joining::kAlone;
  const auto sequences = static_cast<size_t>(joins ? shape[0] : 1);
  const TensorMaker make = [&session](DataType type, const Shape& wanted) {
    return session.MakeInput(type, wanted);
  };
  DecoderRows rows(plan, StateMemoryOf(plan, session, make));
  ONNXD_RETURN_IF_ERROR(rows.Change({}, std::vector<DecoderState>(sequences, state)));
  for (int step = 0; step < kSteps; ++step) {
    ONNXD_ASSIGN_OR_RETURN(const auto taken, rows.StepInputs(std::vector<int64_t>(sequences, 1)));
    options.outputs_into = rows.StatesAfter();
    ONNXD_ASSIGN_OR_RETURN(const auto given, session.Run(taken, options));
    ONNXD_RETURN_IF_ERROR(rows.SetStates(given));
  }
  return Status::Ok();
}

}  // namespace

Status RunTexts(const InferenceSession& session,
                const std::vector<std::map<std::string, Shape>>& profiles) {
  ONNXD_ASSIGN_OR_RETURN(DecoderPlan plan, MakeDecoderPlan(session.inputs(), session.outputs()));
  ONNXD_ASSIGN_OR_RETURN(const JoiningTrial trial, TryJoining(plan, session));
  Adopt(trial, plan);
  for (const auto& shapes : profiles) {
    for (const auto& [name, shape] : shapes) {
      if (name != kTokens) {
        return InvalidArgument(StrCat("--profile ", name, ": with --texts they are of ", kTokens));
      }
      ONNXD_RETURN_IF_ERROR(RunText(plan, session, shape));
    }
  }
  return Status::Ok();
}

}  // namespace onnxd
