// config.pbtxt: a model's configuration as Triton's repositories have it, read as ModelSettings:
// https://github.com/triton-inference-server/server/blob/main/docs/user_guide/model_configuration.md
#pragma once

#include <string>

#include "server/config/model_settings.h"

namespace onnxd {

// Applies the text of a config.pbtxt, which messages call `name`, of the model in folder `model`.
// kInvalidArgument with line and column where it is no text of Triton's ModelConfig, and without
// for fields that would change answers and have no like here. Fields that only say how Triton
// should run the model are named in ModelSettings::ignored.
Status ApplyTritonConfig(const std::string& text, const std::string& name, const std::string& model,
                         ModelSettings& settings);

// The same of the JSON form, as a request to load a model brings it: over `settings`, no file.
Status ApplyTritonConfigJson(const std::string& json, const std::string& model,
                             ModelSettings& settings);

}  // namespace onnxd
