// Labels of a model's versions, the shares of the requests that name none, and taking versions
// back.
//
//   GET  v2/models/NAME/rollout
//   POST v2/repository/models/NAME/rollout    {"labels": {"canary": 4, "old": null},
//                                              "split": {"stable": 90, "canary": 10}}
//   POST v2/repository/models/NAME/rollback   {"version": 4}, or nothing: the canary, or the newest
//   POST v2/repository/models/NAME/release    {"version": 4}
//   -> {"model": "m", "labels": {"canary": "4", "stable": "3"},
//       "split": {"stable": 90, "canary": 10},
//       "changed_by_request": {"labels": {"canary": "4"}, "split": {..}},
//       "rolled_back": [{"version": "4", "contents": "(hash)", "reason": ".."}],
//       "shadow": {"version": "5", "percent": 100, "tolerance": 0.001,
//                  "differences": [{"request_id": "..", "version": "3", "shadow_version": "5",
//                                   "difference": "output 'y': .."}]},
//       "persistent": true}
//
// What a request does not name stays; null: as in the model.yaml.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

struct RolloutRoute {
  enum class Verb { kShow, kChange, kRollBack, kRelease } verb;
  std::string model;
};

// Of the segments of a path; nothing: it is none of these.
std::optional<RolloutRoute> RolloutRouteOf(const std::vector<std::string>& path);

void HandleRollout(InferenceService& service, const RolloutRoute& route, const HttpRequest& request,
                   HttpRespond respond);

}  // namespace onnxd
