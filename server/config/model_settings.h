// ModelSettings: what can be said of one model, in NAME/model.yaml of its repository. What is not
// said there comes from the server's configuration. config/model.yaml documents every key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "server/config/ensemble_settings.h"
#include "server/config/generation_settings.h"
#include "server/config/option_key.h"
#include "server/config/padding_settings.h"
#include "server/config/provider_settings.h"
#include "server/config/rollout_settings.h"
#include "server/config/sequence_settings.h"
#include "server/config/text_settings.h"

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

// Answers that are kept, for equal requests to come.
struct ResponseCacheSettings {
  bool enabled = false;
  int64_t ttl_s = 0;  // how long one is given; 0: until its memory is needed
  bool operator==(const ResponseCacheSettings&) const = default;
};

// Of requests; more are refused. 0: any number.
struct RateLimitSettings {
  int64_t requests_per_second = 0;      // of all together
  int64_t burst = 0;                    // at once, after a rest; 0: one second's
  int64_t key_requests_per_second = 0;  // of one API key
  int64_t key_burst = 0;
  bool operator==(const RateLimitSettings&) const = default;
};

// An input or output as a config.pbtxt declares it.
struct DeclaredTensor {
  bool is_input = true;
  std::string name;
  std::string data_type;      // of the protocol, like "FP32"; empty: any
  std::vector<int64_t> dims;  // with the batch; -1: any
  bool operator==(const DeclaredTensor&) const = default;
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
  int64_t threads = 0;    // that compute one request; 0: runtime.threads
  std::string providers;  // by priority, separated by commas; empty: runtime.providers
  ProviderDeviceSettings provider_options;
  std::string precision;  // of large products, as runtime.precision; empty: that
  // of its histograms of durations, upper bounds, ascending; empty: from 50 us to 30 s
  std::vector<int64_t> duration_buckets_us;
  BatchingOptions batching;
  bool batch_size_given = false;  // batching.max_batch_size stands in the file
  SequenceSettings sequence;
  TextSettings texts;
  GenerationSettings generation;
  std::vector<PaddedDimension> padding;  // by dimension
  ResponseCacheSettings response_cache;
  RateLimitSettings rate_limit;
  EnsembleSettings ensemble;
  // Of a config.pbtxt: what the model must have, and what was read but has no use here.
  std::vector<DeclaredTensor> declared;
  std::string ignored;
  RolloutSettings rollout;  // a change of it loads nothing
  bool operator==(const ModelSettings&) const = default;
};

const std::vector<OptionKey<BatchingOptions>>& BatchingKeys();
// Of all that stands in one value or a list of values; what is a list of maps has no key.
const std::vector<OptionKey<ModelSettings>>& ModelSettingsKeys();

// All that is no key of ModelSettingsKeys, but the rollout, as one text.
std::string DescribeRecords(const ModelSettings& settings);

// Applies the text of a model.yaml, which messages call `name`. As ApplyConfigText.
Status ApplyModelSettings(const std::string& text, const std::string& name,
                          ModelSettings& settings);

// What must hold between keys.
Status CheckSettings(const BatchingOptions& batching);
Status CheckSettings(const ModelSettings& settings);

}  // namespace onnxd
