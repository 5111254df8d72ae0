// Loop-1 to Loop-25: repeats a body while its condition holds.
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/session/control_flow_nodes.h"
#include "runtime/session/value_stack.h"

namespace onnxd {
namespace {

bool IsTrue(const Value& value) {
  return value.is_tensor() && value.tensor().type() == DataType::kBool &&
         value.tensor().ElementCount() == 1 && *value.tensor().data<bool>();
}

size_t BytesOf(const Value& value) {
  size_t bytes = 0;
  if (const Sequence* sequence = value.sequence()) {
    for (const Value& element : sequence->elements) bytes += BytesOf(element);
  } else if (value.is_tensor() && value.tensor().type() == DataType::kString) {
    for (const std::string& text : value.tensor().elements<std::string>()) bytes += text.size();
  } else if (value.is_tensor()) {
    bytes = value.tensor().bytes();
  }
  return bytes;
}

class Loop : public ControlFlow {
 public:
  Loop(Body body, size_t carried, const ExecutorOptions& options, std::string name)
      : body_(std::move(body)),
        carried_(carried),
        max_iterations_(options.max_iterations),
        max_bytes_(options.max_run_bytes),
        name_(std::move(name)) {}

  Result<std::vector<Value>> Run(std::span<const Value> inputs, std::span<const Value> captures,
                                 const RunOptions& options) const override {
    ONNXD_ASSIGN_OR_RETURN(const int64_t trips, TripCount(inputs[0]));
    bool condition = inputs[1].absent() || IsTrue(inputs[1]);
    std::vector<Value> state(inputs.begin() + 2, inputs.end());
    std::vector<std::vector<Value>> scanned(body_.graph->outputs.size() - 1 - carried_);
    size_t bytes = 0;
    for (int64_t i = 0; i < trips && condition; ++i) {
      if (i >= max_iterations_) {
        return ResourceExhausted(StrCat(name_, ": more than ", max_iterations_, " iterations"));
      }
      std::vector<Value> operands = {Tensor::Scalar(i), Tensor::Scalar(condition)};
      operands.insert(operands.end(), state.begin(), state.end());
      ONNXD_ASSIGN_OR_RETURN(std::vector<Value> results,
                             body_.Run(std::move(operands), captures, options));
      condition = IsTrue(results[0]);
      for (size_t s = 0; s < carried_; ++s) state[s] = std::move(results[1 + s]);
      for (size_t s = 0; s < scanned.size(); ++s) {
        bytes += BytesOf(results[1 + carried_ + s]);
        scanned[s].push_back(std::move(results[1 + carried_ + s]));
      }
      // What the loop carries may grow as well; long sequences are not counted every time.
      size_t carried_bytes = 0;
      for (const Value& value : state) {
        if (i % 64 == 0 || value.is_tensor()) carried_bytes += BytesOf(value);
      }
      if (bytes + carried_bytes > static_cast<size_t>(max_bytes_)) {
        return ResourceExhausted(StrCat(name_, ": what it holds exceeds ", max_bytes_, " bytes"));
      }
    }
    return Results(std::move(state), scanned);
  }

 private:
  Result<int64_t> TripCount(const Value& value) const {
    if (value.absent()) return std::numeric_limits<int64_t>::max();
    if (!value.is_tensor() || value.tensor().type() != DataType::kInt64 ||
        value.tensor().ElementCount() != 1) {
      return InvalidArgument(StrCat(name_, ": the trip count must be one int64"));
    }
    return *value.tensor().data<int64_t>();
  }

  Result<std::vector<Value>> Results(std::vector<Value> state,
                                     const std::vector<std::vector<Value>>& scanned) const {
    for (size_t s = 0; s < scanned.size(); ++s) {
      const ValueType& type = body_.graph->value(body_.graph->outputs[1 + carried_ + s]).type;
      auto stacked =
          StackTensors(scanned[s], 0, false, type.element, type.shape.value_or(SymbolicShape{}));
      if (!stacked.ok()) return stacked.status().WithContext(name_);
      state.emplace_back(std::move(*stacked));
    }
    return state;
  }

  Body body_;
  size_t carried_;
  int64_t max_iterations_, max_bytes_;
  std::string name_;
};

}  // namespace

Result<std::unique_ptr<ControlFlow>> MakeLoop(const Node& node, const ExecutorOptions& options) {
  const std::shared_ptr<Graph> graph = node.attributes.Subgraph("body");
  const size_t carried = node.inputs.size() - 2;
  if (graph->inputs.size() != carried + 2 || graph->outputs.size() < carried + 1 ||
      node.outputs.size() > graph->outputs.size() - 1) {
    return InvalidArgument(StrCat(Describe(node), ": the body has ", graph->inputs.size(),
                                  " inputs and ", graph->outputs.size(), " outputs for ", carried,
                                  " carried values and ", node.outputs.size(), " outputs"));
  }
  ONNXD_ASSIGN_OR_RETURN(Body body, MakeBody(node, "body", options));
  return std::unique_ptr<ControlFlow>(
      std::make_unique<Loop>(std::move(body), carried, options, Describe(node)));
}

}  // namespace onnxd
