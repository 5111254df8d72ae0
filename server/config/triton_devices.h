// Where a config.pbtxt says that a model computes: instance groups, execution accelerators and the
// parameters of Triton's onnxruntime backend, as providers, precision and threads.
// https://github.com/triton-inference-server/onnxruntime_backend#readme
#pragma once

#include <set>
#include <string>

#include "runtime/base/status.h"

namespace inference {
class ModelConfig;
}

namespace onnxd {

struct ModelSettings;

// KIND_CPU is the CPU; KIND_GPU, or a tensorrt or cuda accelerator, a device with the CPU behind
// it. A file that names neither leaves the server's providers. Adds to `ignored` what has no like
// here. kInvalidArgument for a value that is none of its parameter.
Status ApplyTritonDevices(const inference::ModelConfig& config, ModelSettings& settings,
                          std::set<std::string>& ignored);

}  // namespace onnxd
