// TryJoining: how sequences of different lengths may take their steps in one run.
#pragma once

#include "runtime/session/inference_session.h"
#include "server/generation/decoder_plan.h"

namespace onnxd {

struct JoiningTrial {
  DecoderPlan::Joining joining = DecoderPlan::Joining::kAlone;
  // As DecoderPlan's.
  bool keeps_size = false;
  bool in_place = false;
  bool states_on_device = false;
  // Whether a prompt may be computed in several pieces.
  bool takes_pieces = false;
};

// Computes two made-up sequences alone and side by side, with each way of filling up the shorter
// one that the plan has inputs for, and takes the first that gives the same logits.
// On a device states stay there if they can. kFailedPrecondition where one alone already fails.
Result<JoiningTrial> TryJoining(const DecoderPlan& plan, const InferenceSession& session);

// What it found becomes the plan's.
void Adopt(const JoiningTrial& trial, DecoderPlan& plan);

}  // namespace onnxd
