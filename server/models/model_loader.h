// ModelLoader: from a wanted version to one that can serve.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "server/config/server_options.h"
#include "server/models/beside.h"
#include "server/models/model_repository.h"
#include "server/models/model_version.h"

namespace onnxd {

struct GenerationPlan;

// One thread.
class ModelLoader {
 public:
  using LoadSession = std::function<Result<std::unique_ptr<InferenceSession>>(
      const std::string& path, const SessionOptions& options)>;

  // The providers that a model's settings ask for; any thread.
  using FindProviders = std::function<Result<std::vector<std::shared_ptr<const ExecutionProvider>>>(
      const ModelSettings& settings)>;

  // `load`: InferenceSession::Load, or what a test puts in its place. `find_providers`: null where
  // every model has those of `session`.
  ModelLoader(SessionOptions session, Scheduler& scheduler, ServerMetrics& metrics,
              LoadSession load, FindProviders find_providers = nullptr);

  // How, and what is done while it lasts.
  struct Way {
    WorkPriority priority = WorkPriority::kNormal;
    std::chrono::seconds timeout{600};
    bool trusts_files = true;  // false: somebody may be writing them, their contents are compared
    const std::atomic<bool>* stopping = nullptr;
    std::function<void()> meanwhile = [] {};
  };

  // Loads it, its memory counted in `memory`, and runs it once on made-up rows if its settings
  // want it warm. kDeadlineExceeded when it takes longer than `way` allows, kAborted when files
  // that are not trusted changed meanwhile, kInvalidArgument also when the settings want batches
  // that the graph cannot do; with `warm_up_failure: refuse` why the run failed, or
  // kFailedPrecondition when it answered NaN or infinity.
  Result<std::shared_ptr<ModelVersion>> Load(const WantedVersion& wanted,
                                             std::shared_ptr<MemoryAccount> memory, const Way& way);

  // Finds out whether requests may share runs, tells the scheduler, and runs each batch size that
  // is quick.
  void TryBatches(const std::shared_ptr<const ModelVersion>& version, const Way& way);

  const PreparedModelCache* cache() const { return session_.cache.get(); }

 private:
  std::shared_ptr<ThreadPool> PoolOf(int64_t threads);
  void AddGenerator(const std::shared_ptr<const GenerationPlan>& plan, const TensorMaker& make,
                    ModelVersion& version);

  const SessionOptions session_;
  Scheduler& scheduler_;
  ServerMetrics& metrics_;
  const LoadSession load_;
  const FindProviders find_providers_;
  std::map<int64_t, std::shared_ptr<ThreadPool>> pools_;  // by number of threads
};

}  // namespace onnxd
