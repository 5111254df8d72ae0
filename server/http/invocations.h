// What SageMaker, Vertex AI and Azure ML ask of a container, at /invocations and /ping or at the
// paths that the configuration has in their place.
//
//   POST /invocations  {"instances": ..}            as TensorFlow Serving's :predict
//                      {"inputs": [{"name": ..}]}   as the Open Inference Protocol's infer
//                      {"inputs": ..}               other ones as TensorFlow Serving's columns
//                      {"input": ..}                as /predict
//                      binary tensors with a Content-Type of
//                      application/vnd.sagemaker-triton.binary+json;json-header-size=N
//
// The model is the default one, or the only one.
// Source: https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html,
// https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements
#pragma once

#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

void HandleInvocations(InferenceService& service, HttpRequest request, HttpRespond respond);

}  // namespace onnxd
