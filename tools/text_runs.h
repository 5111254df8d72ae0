// RunTexts: what `serve --texts` runs of a language model, ahead of time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/session/inference_session.h"
#include "runtime/tensor/shape.h"

namespace onnxd {

// The trial of a load, and for each shape of "input_ids", [sequences, tokens], a prompt of so many
// tokens, as many sequences of which then take steps side by side, where the model can. The tokens
// are made up. `session`: as DecoderPlan::AskOf has it. kInvalidArgument for another input, and for
// what is no such model; errors as Run.
Status RunTexts(const InferenceSession& session,
                const std::vector<std::map<std::string, Shape>>& profiles);

}  // namespace onnxd
