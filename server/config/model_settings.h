// ModelSettings: what can be said of one model, in NAME/model.yaml of its repository. What is not
// said there comes from the server's configuration. config/model.yaml documents every key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "server/config/option_key.h"
#include "server/config/rollout_settings.h"

namespace onnxd {

// As Triton's dynamic_batching and its queue policy have them.
struct BatchingOptions {
  std::string mode = "auto";                  // auto: where a trial finds it safe; off
  int64_t max_batch_size = 256;               // rows of one run
  std::vector<int64_t> preferred_batch_size;  // ascending; empty: follows the measurements
  int64_t max_queue_delay_us = -1;            // a request waits for others; -1: as long as it pays
  int64_t target_p99_ms = 0;                  // batches are kept small enough for it; 0: none
  int64_t priority_levels = 0;                // of requests; 0: their priority does not count
  int64_t default_priority_level = 1;
  int64_t queue_requests = 0;  // that wait for one model; 0: only limits.queue_requests holds
  // reject: a request whose deadline has passed is refused; delay: it is computed after the others
  std::string timeout_action = "reject";
  int64_t default_timeout_ms = 0;      // of requests without one; 0: none
  bool allow_timeout_override = true;  // false: requests' own timeouts do not count
  bool operator==(const BatchingOptions&) const = default;
};

struct ModelSettings {
  std::string versions = "latest";  // latest, latest:N, all, or numbers
  // availability: a new version loads beside the old one; unload_first: after it is gone
  std::string update_policy = "availability";
  bool warm_up = true;  // runs of each batch size before a version is published
  // refuse: a version whose warm-up run fails, or answers NaN or infinity, is not published
  std::string warm_up_failure = "publish";
  bool pinned = false;    // never unloaded to make room
  bool required = false;  // without it the server is not ready
  int64_t executors =
      0;  // requests of it computed at once, at most; 0: all, but one where others wait
  int64_t threads = 0;  // that compute one request; 0: runtime.threads
  // of its histograms of durations, upper bounds, ascending; empty: from 50 us to 30 s
  std::vector<int64_t> duration_buckets_us;
  BatchingOptions batching;
  bool batch_size_given = false;  // batching.max_batch_size stands in the file
  RolloutSettings rollout;        // a change of it loads nothing
  bool operator==(const ModelSettings&) const = default;
};

const std::vector<OptionKey<BatchingOptions>>& BatchingKeys();
const std::vector<OptionKey<ModelSettings>>& ModelSettingsKeys();

// Applies the text of a model.yaml, which messages call `name`. As ApplyConfigText.
Status ApplyModelSettings(const std::string& text, const std::string& name,
                          ModelSettings& settings);

// What must hold between keys.
Status CheckSettings(const BatchingOptions& batching);

}  // namespace onnxd
