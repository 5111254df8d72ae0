// What this processor makes of bfloat16.
#pragma once

namespace onnxd::onednn {

// How many times as fast as in float32 large products of bfloat16 are; 0 where the processor has no
// instructions for them. Measured at the first call, within some 30 ms. Any thread.
double Bfloat16Speed();

}  // namespace onnxd::onednn
