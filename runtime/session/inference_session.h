// InferenceSession: a loaded model. The engine's front door.
//
//   auto session = InferenceSession::Load("model.onnx", {});
//   auto outputs = (*session)->Run({input}, {});
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/memory_account.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_pool.h"
#include "runtime/graph/graph_pass.h"
#include "runtime/kernel/execution_provider.h"
#include "runtime/session/dropped_tokens.h"
#include "runtime/session/last_rows.h"
#include "runtime/session/run_options.h"
#include "runtime/tensor/value.h"

namespace onnxd {

class GraphExecutor;
class PreparedModelCache;
struct CacheEntry;
struct Model;

struct SessionOptions {
  OptimizationLevel optimization = OptimizationLevel::kAll;
  // By priority; must not be empty (MakeProviders gives the defaults of a build).
  std::vector<std::shared_ptr<const ExecutionProvider>> providers;
  // Splits the work of one run; null: the calling thread alone. Shared by sessions.
  std::shared_ptr<ThreadPool> pool;
  // Memory one run may take beyond its inputs, bytes.
  int64_t max_run_bytes = int64_t{4} << 30;
  // Where Load finds what an earlier process prepared, and SaveToCache puts it; null: nowhere.
  std::shared_ptr<PreparedModelCache> cache;
  // Where no provider computes this one, float32 does, and a line in the log says so.
  Precision precision = Precision::kFloat32;
  // Takes denormal floats for zeros while a model computes; results below 1.18e-38 are lost.
  bool denormals_as_zero = false;
  // Where constants, packed weights, memory of runs and outputs count; null: nowhere.
  std::shared_ptr<MemoryAccount> memory;
  // Of which output runs may be asked for the last rows alone, and of which states the first tokens
  // may be dropped: the session may have an input more for each.
  LastRows last_rows;
  DroppedTokens dropped_tokens;
  // Plans kept, one per combination of input shapes; the least recently used goes first.
  size_t max_plans = 64;
};

struct TensorSignature {
  std::string name;
  ValueType type;
};

// What the file states about itself.
struct ModelInfo {
  int64_t ir_version = 0;
  std::map<std::string, int64_t> opsets;
  std::string producer_name, producer_version;
  int64_t model_version = 0;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::map<std::string, int64_t> operator_counts;    // before optimization, "domain::Op"
  int64_t parameters = 0;                            // elements of all initializers
  std::map<std::string, int64_t> nodes_by_provider;  // after optimization
  // Why rows of several requests must not be computed together (row_independence.h); empty: nothing
  // speaks against it in the graph, as it was loaded or as StandardPasses left it.
  std::string rows_depend;
};

// As Run checks one input: kInvalidArgument says what was expected and what came.
Status CheckInput(const TensorSignature& expected, const Value& value);

// Immutable to callers; every method may be called from any thread, several Runs at once.
class InferenceSession {
 public:
  // Reads, checks, optimises and prepares the model. Errors name the node or tensor:
  // kInvalidArgument (not a valid model), kUnimplemented (an operator or type that no provider
  // takes), kResourceExhausted (over a budget), kNotFound, kDataLoss.
  static Result<std::unique_ptr<InferenceSession>> Load(const std::string& path,
                                                        SessionOptions options);
  static Result<std::unique_ptr<InferenceSession>> LoadBytes(std::string bytes,
                                                             SessionOptions options);
  static Result<std::unique_ptr<InferenceSession>> FromModel(Model model, SessionOptions options);
  ~InferenceSession();

  const std::vector<TensorSignature>& inputs() const { return inputs_; }
  const std::vector<TensorSignature>& outputs() const { return outputs_; }
  const ModelInfo& info() const { return info_; }

  // One value per input of the signature, in its order; returns one per output. Input memory must
  // be aligned for its element type and stay unchanged during the call. kInvalidArgument names the
  // input, what was expected and what came; kDeadlineExceeded and kCancelled as in RunOptions;
  // kResourceExhausted when the shapes need more than max_run_bytes, or memory than there is. No
  // exception leaves.
  Result<std::vector<Value>> Run(std::span<const Value> inputs, const RunOptions& options) const;

  // A tensor to fill for Run; where nodes run on a device, in memory from which its copies run
  // beside computation, as long as there is some. Errors as Tensor::Create.
  Result<Tensor> MakeInput(DataType type, const Shape& shape) const;

  // The value in the memory of the device on which nodes run, from which Run takes it without a
  // copy; the same value where there is none. Errors as Device::Allocate. Run gives
  // kInvalidArgument where a node reads such an input on the host.
  Result<Value> MoveInput(const Value& value) const;

  // Whether nodes that read inputs run on a device. Its runs are computed there one after the
  // other, and the first one of each combination of shapes takes long: ways to compute them are
  // timed.
  bool runs_on_device() const;

  // From now on the memory of outputs that are gone stays for those of the next run, as much as one
  // run's, where else it is 32 MB at most: large ones come from the system page by page, cleared.
  // What it returns gives it back; any thread may call that, also when the session is gone.
  std::function<void()> KeepOutputMemory() const;

  // Puts the prepared model into the cache, with the weights packed so far: call it after a first
  // run. Does nothing without a cache, when Load found the model there, or after the first call.
  // Any thread.
  Status SaveToCache() const;
  // Whether SaveToCache has something to do.
  bool wants_saving() const;
  bool from_cache() const { return from_cache_; }

 private:
  InferenceSession();
  static Result<std::unique_ptr<InferenceSession>> Make(Model model, SessionOptions options,
                                                        std::unique_ptr<CacheEntry> entry);
  static Result<std::unique_ptr<InferenceSession>> FindPrepared(const CacheEntry& entry,
                                                                const SessionOptions& options);
  Status MakeExecutor(Graph graph, const SessionOptions& options, bool keep_initializers);

  std::vector<TensorSignature> inputs_, outputs_;
  ModelInfo info_;
  std::unique_ptr<GraphExecutor> executor_;
  std::shared_ptr<MemoryAccount> memory_;  // may be null
  bool from_cache_ = false;
  mutable std::mutex cache_mutex_;
  mutable std::unique_ptr<CacheEntry> to_save_;  // guarded by cache_mutex_
};

}  // namespace onnxd
