// GraphExecutor: a graph with its kernels, ready to run: plans per shape, contexts and arenas per
// run in flight.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/kernel/execution_provider.h"
#include "runtime/session/arena_pool.h"
#include "runtime/session/execution_plan.h"
#include "runtime/session/run_options.h"
#include "runtime/tensor/recycled_buffers.h"

namespace onnxd {

struct ExecutorOptions {
  std::vector<std::shared_ptr<const ExecutionProvider>> providers;  // by priority; never empty
  std::shared_ptr<ThreadPool> pool;
  int64_t max_run_bytes = 0;  // memory of one run beyond its inputs
  size_t max_plans = 64;
  int64_t max_iterations = 10'000'000;  // of one Loop
  bool denormals_as_zero = false;
  // Leaves the initializers in the graph, with their forms, so that it can be archived. Their plain
  // elements stay where a kernel read them as such.
  bool keep_initializers = false;
};

// Immutable but for its pools of plans, contexts and arenas; Run may be called from any thread.
class GraphExecutor {
 public:
  // Makes every node's kernel, giving each to the first provider that takes it. Constants that
  // kernels packed are dropped, the others materialised. kUnimplemented names the node that no
  // provider takes, and why.
  // The graph's initializers are taken out of it unless the options keep them.
  static Result<std::unique_ptr<GraphExecutor>> Create(std::shared_ptr<Graph> graph,
                                                       ExecutorOptions options);
  ~GraphExecutor();

  // `inputs`: one per graph input, then one per capture that the graph uses. Dense tensors must
  // have the graph's element types.
  Result<std::vector<Value>> Run(std::span<const Value> inputs, const RunOptions& options) const;

  // See InferenceSession.
  Result<Tensor> MakeInput(DataType type, const Shape& shape) const;
  Result<Value> MoveInput(const Value& value) const;
  bool runs_on_device() const { return copies_in_; }
  std::function<void()> KeepOutputMemory() const;

  const Graph& graph() const { return *graph_; }
  const std::vector<CompiledNode>& nodes() const { return nodes_; }
  // Bytes of constants that stay in memory as they are (packed copies not included).
  size_t constant_bytes() const;

 private:
  struct Context;
  struct PlanEntry;

  GraphExecutor() = default;
  Status CompileNode(const Node& node);
  Status BringConstants();
  Result<std::unique_ptr<Context>> MakeContext(const ExecutionPlan& plan) const;
  // Gives back the memory that contexts of other shapes keep on the device. False: there are none.
  bool DropIdleContexts() const;
  Status TakeArena(const ExecutionPlan& plan, Context& context) const;
  Result<std::shared_ptr<PlanEntry>> FindOrMakePlan(
      std::span<const Value> inputs, const std::vector<bool>& outputs_on_device) const;
  // In memory of the host from which copies run beside computation, as long as there is some.
  Result<Tensor> MakePinned(DataType type, const Shape& shape) const;
  Result<Value> MakeOutput(const OutputSource& source) const;
  Status RunSteps(const ExecutionPlan& plan, Context& context, std::span<const Value> inputs,
                  std::vector<Value>& outputs, const RunOptions& options) const;
  Status RunRecorded(size_t index, const ExecutionPlan& plan, Context& context,
                     const RunOptions& options) const;
  Status Finish(const ExecutionPlan& plan, Context& context) const;
  // Requires mutex_.
  void LimitBuffers() const;
  static void TakeOutputs(const ExecutionPlan& plan, const Context& context,
                          std::span<const Value> inputs, std::vector<Value>& outputs);
  static void* DeviceAddress(const Context& context, size_t offset);
  Status RunStep(size_t index, const ExecutionPlan& plan, Context& context,
                 std::span<const Value> inputs, std::span<const Value> outputs,
                 const RunOptions& options) const;
  Status RunPlanned(size_t index, const ExecutionPlan& plan, Context& context) const;
  Status RunUnplanned(size_t index, const ExecutionPlan& plan, Context& context,
                      std::span<const Value> inputs, std::span<const Value> outputs,
                      const RunOptions& options) const;

  std::shared_ptr<const Graph> graph_;
  ExecutorOptions options_;
  std::vector<ValueId> inputs_;  // graph inputs, then captures in use
  std::vector<CompiledNode> nodes_;
  std::map<ValueId, Tensor> constants_;
  std::map<ValueId, Tensor> device_constants_;
  Device* device_ = nullptr;  // of the nodes that run on one
  bool copies_in_ = false;    // to it

  mutable ArenaPool arenas_;
  const std::shared_ptr<RecycledBuffers> buffers_ = RecycledBuffers::Make();
  mutable std::mutex mutex_;
  mutable bool keeps_output_memory_ = false;             // guarded by mutex_
  mutable std::list<std::shared_ptr<PlanEntry>> plans_;  // guarded by mutex_, latest use first
};

}  // namespace onnxd
