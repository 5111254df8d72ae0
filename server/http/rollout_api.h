// Labels of a model's versions, and the shares of the requests that name none.
//
//   GET  v2/models/NAME/rollout
//   POST v2/repository/models/NAME/rollout   {"labels": {"canary": 4, "old": null},
//                                             "split": {"stable": 90, "canary": 10}}
//   -> {"model": "m", "labels": {"canary": "4", "stable": "3"}, "split": {"stable": 90, "canary":
//   10},
//       "changed_by_request": {"labels": {"canary": "4"}, "split": {..}}, "persistent": true}
//
// What a request does not name stays; null: as in the model.yaml.
#pragma once

#include <string>
#include <vector>

#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// The model of a path, of segments; empty: it is none of these.
std::string RolloutModelOf(const std::vector<std::string>& path);

void GetRollout(InferenceService& service, const std::string& model, HttpRespond respond);
void ChangeRollout(InferenceService& service, const std::string& model, const HttpRequest& request,
                   HttpRespond respond);

}  // namespace onnxd
