// GatherStates: rows of several tensors side by side in one, in which their tokens begin or end
// together.
#pragma once

#include <span>

#include "runtime/tensor/device.h"
#include "runtime/tensor/tensor.h"
#include "server/batching/rows.h"
#include "server/generation/decoder_plan.h"

namespace onnxd {

// A sequence's part of a state: a row of the tensor, of which so many tokens are its own: the last
// ones where shorter sequences are padded before their tokens, else the first.
struct StateRow {
  Tensor tensor;
  int64_t row = 0, length = 0;
};

// Of so many sequences with `past` tokens each.
Shape ShapeOfState(const DecoderPlan::State& state, int64_t rows, int64_t past);

// Zeros are where a sequence has no tokens. Where one of the tensors is on a device, so is the
// result; else it is one of `make`. Errors as of `make`, Device::Allocate and copies there.
Result<Tensor> GatherStates(const DecoderPlan::State& state, std::span<const StateRow> sources,
                            int64_t past, bool pads_before, const TensorMaker& make);

}  // namespace onnxd
