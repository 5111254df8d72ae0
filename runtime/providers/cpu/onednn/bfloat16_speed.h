// What this processor makes of bfloat16.
#pragma once

namespace onnxd::onednn {

// Whether oneDNN has instructions of this processor for it, and need not compute in floats.
bool HasBfloat16();

// How many times as fast as in float32 large products of bfloat16 are; 0 where the processor has no
// instructions for them. Measured at the first call, within some 30 ms. Any thread.
double Bfloat16Speed();

}  // namespace onnxd::onednn
