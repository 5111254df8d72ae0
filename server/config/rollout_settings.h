// RolloutSettings: names for a model's versions, how requests that name none are shared among
// versions, which version gets copies of others' requests, and when one is taken back. The sections
// `labels`, `split`, `shadow` and `rollback` of NAME/model.yaml.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "server/config/option_key.h"

namespace onnxd {

// When a version of a split is rolled back that comes after the split's first, the baseline. Each
// is compared with statistical certainty; 0: never.
struct RollbackSettings {
  int64_t error_percent = 5;     // of its answers that fail, more than of the baseline's
  int64_t latency_percent = 0;   // of the duration that 95% of the baseline's answers keep: over 5%
                                 // of its own take longer
  int64_t mismatch_percent = 0;  // of its answers to copies that differ; of the shadow version
  int64_t min_requests = 20;     // that it has answered before anything is said of it
  bool operator==(const RollbackSettings&) const = default;
};

// A version that computes what others answer, too.
struct ShadowSettings {
  std::string version;       // a number, or a label; empty: none
  int64_t percent = 100;     // of the requests
  double tolerance = 0.001;  // numbers agree within tolerance * (1 + |the answer's|)
  bool operator==(const ShadowSettings&) const = default;
};

const std::vector<OptionKey<RollbackSettings>>& RollbackKeys();
const std::vector<OptionKey<ShadowSettings>>& ShadowKeys();

struct RolloutSettings {
  struct Share {
    std::string version;  // a number, or a label
    int64_t weight;       // beside those of the others
    bool operator==(const Share&) const = default;
  };

  std::map<std::string, std::string> labels;  // the version of each
  std::vector<Share> split;                   // in the order of the file; empty: the newest serves
  ShadowSettings shadow;
  RollbackSettings rollback;
  bool operator==(const RolloutSettings&) const = default;

  // The versions that are named, in any order, some perhaps twice.
  std::vector<std::string> Versions() const;
  // `version`, or the one that it is the label of.
  const std::string& Resolve(const std::string& version) const;
};

// A letter, then letters, digits, '-', '_' and '.', 64 in all; "latest" has another meaning.
bool IsLabel(const std::string& text);

// Adds what stands in the file. kInvalidArgument says what was expected.
Status AddLabel(const std::string& label, const std::string& version, RolloutSettings& rollout);
Status AddShare(const std::string& version, const std::string& weight, RolloutSettings& rollout);

// What must hold between them: shares are of versions or known labels, and not all of them zero.
Status CheckRollout(const RolloutSettings& rollout);

}  // namespace onnxd
