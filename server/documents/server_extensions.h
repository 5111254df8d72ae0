// The extensions of the Open Inference Protocol that this server speaks, by the names clients look
// for: https://github.com/triton-inference-server/server/tree/main/docs/protocol
#pragma once

#include <array>
#include <string_view>

namespace onnxd {

inline constexpr std::array<std::string_view, 13> kServerExtensions = {
    "classification",
    "model_repository",
    "model_repository(unload_dependents)",
    "sequence",
    "sequence(string_id)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging"};

}  // namespace onnxd
