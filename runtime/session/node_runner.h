// Runs one node on values that exist: shapes inferred, kernel prepared, outputs allocated. The slow
// way, for what planning cannot do ahead: constant folding, shape arithmetic while planning, and
// nodes whose shapes the data decide.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/kernel/kernel.h"
#include "runtime/session/compiled_node.h"
#include "runtime/tensor/recycled_buffers.h"

namespace onnxd {

// A node's kernel prepared for inputs of these types and shapes. Used by one thread at a time.
class PreparedNode {
 public:
  struct Request {
    const Kernel& kernel;
    const Node& node;
    std::span<const Value> inputs;            // one per node.inputs, absent values for absent ones
    std::span<const ValueType> output_types;  // the static ones
    int threads;
    int64_t max_bytes;                   // of outputs and scratch together
    size_t max_kept_scratch = 1 << 20;   // more is allocated for each run
    RecycledBuffers* buffers = nullptr;  // for outputs and scratch on the host; may be null
    // Of a device's kernel, or a copy: where it runs, and leaves outputs.
    Side side = Side::kHost;
    Device* device = nullptr;
    Stream* stream = nullptr;
  };

  // `known`: whether the preparation may depend on an input's elements. kResourceExhausted beyond
  // max_bytes.
  static Result<PreparedNode> Make(const Request& request, const std::vector<bool>& known);

  // Whether outputs' shapes are all known before the node runs.
  bool complete() const;
  // Whether the inputs are of the types and shapes that it was prepared for.
  bool Fits(std::span<const Value> inputs) const;
  // Requires inputs that fit, and the stream to be unused by others. A device's kernel and a copy
  // to the host have ended when it returns if they may fail, or their results are on the host.
  Result<std::vector<Value>> Run(std::span<const Value> inputs, ThreadPool& pool);

 private:
  struct Input {
    ValueType::Kind kind;
    bool present;
    DataType type;
    Shape shape;
  };
  struct Output {
    bool present;
    bool is_tensor;
    DataType type;
    std::optional<Shape> shape;
  };

  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  PreparedKernel prepared_;
  std::unique_ptr<KernelState> state_;
  Side side_ = Side::kHost;
  RecycledBuffers* buffers_ = nullptr;
  Device* device_ = nullptr;
  Stream* stream_ = nullptr;
  size_t max_kept_scratch_ = 0;
  Result<std::shared_ptr<void>> Scratch();
  Result<Tensor> NewOutput(const Output& output) const;
  Buffer HostMemory(size_t bytes) const;

  std::shared_ptr<void> scratch_;  // kept when it is small, or on the device
};

// Prepares the node for what these inputs are, their elements included, and runs it once.
Result<std::vector<Value>> RunNode(const PreparedNode::Request& request, ThreadPool& pool);

// What a node that runs again and again keeps from one run to the next.
struct KeptNode {
  std::optional<PreparedNode> prepared;
  bool depends_on_elements = false;  // it was not complete without them: prepared for each run
};

// As RunNode, but prepared only when types or shapes are others than the last time, if the elements
// of constants are all that the preparation asks for. `constant`: one per input.
Result<std::vector<Value>> RunNode(const PreparedNode::Request& request,
                                   const std::vector<bool>& constant, KeptNode& kept,
                                   ThreadPool& pool);

}  // namespace onnxd
