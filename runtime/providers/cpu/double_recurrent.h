#pragma once

#include <memory>

#include "runtime/kernel/kernel.h"

namespace onnxd {

// LSTM, GRU and RNN of doubles, by plain loops over the equations.
Result<std::unique_ptr<Kernel>> MakeDoubleRecurrent(const KernelInfo& info);

}  // namespace onnxd
