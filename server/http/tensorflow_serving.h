// TensorFlow Serving's REST API, which is KServe's protocol v1, too.
//
//   POST /v1/models/NAME[/versions/N|/labels/LABEL]:predict
//        {"instances": [[1.0, 2.0], ..]} or [{"x": [1.0, 2.0], "y": 3}, ..]   rows
//        -> {"predictions": [..]}                 a value for each row, or an object by output
//        {"inputs": [[1.0, 2.0], ..]} or {"x": .., "y": ..}                   columns
//        -> {"outputs": ..}                       a tensor, or an object by output
//   GET  /v1/models/NAME[/versions/N|/labels/LABEL][/metadata]
//   GET  /v1/models                               KServe's list and OpenAI's
//
// Texts may be {"b64": ".."}; those of outputs whose names end in "_bytes" are. NaN, Infinity and
// -Infinity are taken and given as these tokens.
// Source: https://www.tensorflow.org/tfx/serving/api_rest,
// https://kserve.github.io/website/latest/modelserving/data_plane/v1_protocol/
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

struct TensorFlowServingRoute {
  enum class Verb { kList, kStatus, kMetadata, kPredict } verb;
  std::string model, version;  // the version's number or label; empty: which the request means
};

// Of the segments of a path; nothing: it is none of these.
std::optional<TensorFlowServingRoute> TensorFlowServingRouteOf(
    const std::vector<std::string>& path);

void HandleTensorFlowServing(InferenceService& service, const TensorFlowServingRoute& route,
                             HttpRequest request, HttpRespond respond);

}  // namespace onnxd
