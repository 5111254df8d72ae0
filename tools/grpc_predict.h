// A prediction over gRPC, with the JSON of POST /predict around it.
#pragma once

#include <string>

#include "proto/onnxd.pb.h"
#include "proto/open_inference.pb.h"
#include "tools/http_client.h"

namespace onnxd {

// The request that JSON means for a model: the input alone, {"input": ...}, {"inputs": {NAME: ...}}
// or {NAME: ...}. An array of one dimension less than the model's gets the batch's.
// kInvalidArgument names the input.
Result<v1::PredictRequest> PredictRequestOf(const std::string& json,
                                            const inference::ModelMetadataResponse& model);

// The text that POST /predict answers.
Result<std::string> PredictAnswerText(const v1::PredictResponse& response);

// Asks for the model's inputs, then for the prediction. Errors as CallGrpc and PredictRequestOf.
Result<std::string> PredictWithGrpc(const ServerAddress& server, const std::string& model,
                                    const std::string& json);

}  // namespace onnxd
