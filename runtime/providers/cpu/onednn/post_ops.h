// What a oneDNN primitive does to its result before it is stored.
#pragma once

#include <dnnl.hpp>

#include "runtime/providers/cpu/activation.h"

namespace onnxd::onednn {

// Adds the activation as a post-operation; false for those that oneDNN lacks, which the caller
// applies afterwards.
bool AddActivation(const Activation& activation, dnnl::post_ops& ops);

}  // namespace onnxd::onednn
