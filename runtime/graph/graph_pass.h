// GraphPass: one rewrite of the graph. OptimizationLevel: how far rewriting goes. Precision: how
// exactly large products are computed.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

// As users of onnxruntime know them: nothing, rewrites into standard operators, fusions into
// operators of other domains, and layout changes.
enum class OptimizationLevel { kDisable, kBasic, kExtended, kAll };

std::optional<OptimizationLevel> OptimizationLevelFromName(std::string_view name);
std::string_view OptimizationLevelName(OptimizationLevel level);

// Of products of float32 models. kFloat16, kBfloat16: operands and results of large products have 11
// bits of mantissa and end at 65504, or 8 bits and float's range; sums are floats. kBfloat16x3:
// products of both halves of each operand, about 16 bits.
enum class Precision { kFloat32, kFloat16, kBfloat16, kBfloat16x3 };

std::optional<Precision> PrecisionFromName(std::string_view name);  // "fp32", "fp16", "bf16", "bf16x3"
std::string_view PrecisionName(Precision precision);

// Computes a node whose inputs are constants. Provided by the session, which has kernels; nullopt
// when the result would be over budget or the node cannot be computed alone.
using ConstantEvaluator = std::function<std::optional<std::vector<Tensor>>(
    const Node& node, const std::vector<Tensor>& inputs)>;

// An operand of the nodes of a race, of type kUndefined when it is absent.
struct KernelRaceOperand {
  DataType type = DataType::kUndefined;
  Shape shape;
  bool is_constant = false;
};

// Runs nodes that compute the same on numbers of its own and returns the index of the fastest: the
// first, unless another is clearly faster. Requires candidates. The result is kept for the process
// under `key`, which names all that decides it but the number of threads.
using KernelRace = std::function<size_t(const std::string& key, std::span<const Node> candidates,
                                        std::span<const KernelRaceOperand> operands)>;

struct PassContext {
  ConstantEvaluator evaluate;
  KernelRace race;    // empty: nothing is measured, passes go by their rules
  int64_t opset = 0;  // of ai.onnx, as the model imports it; 0: not stated
  Precision precision = Precision::kFloat32;
  // For a provider's pass: whether no provider before its own knows the node. Empty: all are its
  // own.
  std::function<bool(const Node&)> owns;
};

// Stateless. Leaves a graph that Graph::Verify accepts, with nodes in topological order.
class GraphPass {
 public:
  virtual ~GraphPass() = default;
  virtual std::string_view name() const = 0;
  virtual OptimizationLevel level() const = 0;
  // Returns whether the graph changed.
  virtual Result<bool> Run(Graph& graph, const PassContext& context) const = 0;
};

}  // namespace onnxd
