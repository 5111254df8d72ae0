// Scan-8 to Scan-25: a body over slices of tensors, with carried state. Scan-8 has a batch axis in
// front, whose entries are scanned one by one, and optional sequence lengths.
#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/session/control_flow_nodes.h"
#include "runtime/session/value_stack.h"

namespace onnxd {
namespace {

struct Lane {
  int64_t axis = 0;
  bool reversed = false;
};

std::vector<Lane> LanesOf(const Attributes& attributes, const std::string& kind, size_t count) {
  std::vector<Lane> lanes(count);
  const auto axes = attributes.Ints(StrCat("scan_", kind, "_axes"));
  auto directions = attributes.Ints(StrCat("scan_", kind, "_directions"));
  if (kind == "input" && directions.empty()) directions = attributes.Ints("directions");  // Scan-8
  for (size_t i = 0; i < count; ++i) {
    if (i < axes.size()) lanes[i].axis = axes[i];
    if (i < directions.size()) lanes[i].reversed = directions[i] != 0;
  }
  return lanes;
}

class Scan : public ControlFlow {
 public:
  Scan(Body body, const Node& node, size_t scanned_inputs, size_t states, bool batched)
      : body_(std::move(body)),
        states_(states),
        batched_(batched),
        inputs_(LanesOf(node.attributes, "input", scanned_inputs)),
        outputs_(LanesOf(node.attributes, "output", body_.graph->outputs.size() - states)),
        name_(Describe(node)) {}

  Result<std::vector<Value>> Run(std::span<const Value> inputs, std::span<const Value> captures,
                                 const RunOptions& options) const override {
    for (size_t i = batched_ ? 1 : 0; i < inputs.size(); ++i) {
      if (!inputs[i].is_tensor()) {
        return InvalidArgument(StrCat(name_, ": input ", i, " is no tensor"));
      }
    }
    auto results = batched_ ? RunBatch(inputs, captures, options)
                            : RunOne({inputs.begin(), inputs.end()}, -1, captures, options);
    if (!results.ok()) return results.status().WithContext(name_);
    return results;
  }

 private:
  // `length` limits the iterations; -1: the extent of the scanned axis.
  Result<std::vector<Value>> RunOne(std::vector<Value> values, int64_t length,
                                    std::span<const Value> captures,
                                    const RunOptions& options) const {
    std::vector<int> axes;
    int64_t extent = length;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Shape& shape = values[states_ + i].tensor().shape();
      ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(inputs_[i].axis, shape.rank()));
      axes.push_back(axis);
      if (extent < 0) extent = shape[axis];
      if (length < 0 ? shape[axis] != extent : shape[axis] < extent) {
        return InvalidArgument("the scanned axes have different extents");
      }
    }
    std::vector<Value> state(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(states_));
    std::vector<std::vector<Value>> scanned(outputs_.size());
    for (int64_t step = 0; step < extent; ++step) {
      std::vector<Value> operands = state;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        const int64_t at = inputs_[i].reversed ? extent - 1 - step : step;
        ONNXD_ASSIGN_OR_RETURN(Tensor slice,
                               SliceTensor(values[states_ + i].tensor(), axes[i], at));
        operands.emplace_back(std::move(slice));
      }
      ONNXD_ASSIGN_OR_RETURN(std::vector<Value> results,
                             body_.Run(std::move(operands), captures, options));
      for (size_t i = 0; i < states_; ++i) state[i] = std::move(results[i]);
      for (size_t i = 0; i < scanned.size(); ++i) {
        scanned[i].push_back(std::move(results[states_ + i]));
      }
    }
    for (size_t i = 0; i < scanned.size(); ++i) {
      const ValueType& type = body_.graph->value(body_.graph->outputs[states_ + i]).type;
      ONNXD_ASSIGN_OR_RETURN(Tensor stacked,
                             StackTensors(scanned[i], outputs_[i].axis, outputs_[i].reversed,
                                          type.element, type.shape.value_or(SymbolicShape{})));
      state.emplace_back(std::move(stacked));
    }
    return state;
  }

  Result<std::vector<Value>> RunBatch(std::span<const Value> inputs,
                                      std::span<const Value> captures,
                                      const RunOptions& options) const {
    const Tensor* lengths = inputs[0].is_tensor() ? &inputs[0].tensor() : nullptr;
    const Shape& first = inputs[1].tensor().shape();
    if (first.rank() < 1) return InvalidArgument("the batch axis is missing");
    std::vector<std::vector<Value>> rows(body_.graph->outputs.size());
    for (int64_t row = 0; row < first[0]; ++row) {
      std::vector<Value> values;
      for (size_t i = 1; i < inputs.size(); ++i) {
        const Shape& shape = inputs[i].tensor().shape();
        if (shape.rank() < 1 || shape[0] != first[0]) {
          return InvalidArgument("batch sizes differ");
        }
        ONNXD_ASSIGN_OR_RETURN(Tensor slice, SliceTensor(inputs[i].tensor(), 0, row));
        values.emplace_back(std::move(slice));
      }
      int64_t length = -1;
      if (lengths != nullptr && lengths->ElementCount() == first[0]) {
        length = std::max<int64_t>(0, lengths->data<int64_t>()[row]);
      }
      ONNXD_ASSIGN_OR_RETURN(std::vector<Value> results,
                             RunOne(std::move(values), length, captures, options));
      for (size_t i = 0; i < results.size(); ++i) rows[i].push_back(std::move(results[i]));
    }
    std::vector<Value> outputs;
    for (const std::vector<Value>& values : rows) {
      ONNXD_ASSIGN_OR_RETURN(Tensor stacked, StackTensors(values, 0, false, DataType::kFloat, {}));
      outputs.emplace_back(std::move(stacked));
    }
    return outputs;
  }

  Body body_;
  size_t states_;
  bool batched_;
  std::vector<Lane> inputs_, outputs_;
  std::string name_;
};

}  // namespace

Result<std::unique_ptr<ControlFlow>> MakeScan(const Node& node, const ExecutorOptions& options) {
  const std::shared_ptr<Graph> graph = node.attributes.Subgraph("body");
  const bool batched = node.since_version < 9;
  const size_t operands = node.inputs.size() - (batched ? 1 : 0);
  const int64_t scanned = node.attributes.Int("num_scan_inputs", 0);
  if (scanned < 1 || static_cast<size_t>(scanned) > operands || graph->inputs.size() != operands ||
      graph->outputs.size() < operands - static_cast<size_t>(scanned) ||
      node.outputs.size() > graph->outputs.size()) {
    return InvalidArgument(StrCat(Describe(node), ": the body has ", graph->inputs.size(),
                                  " inputs and ", graph->outputs.size(), " outputs for ", operands,
                                  " operands, ", scanned, " of them scanned"));
  }
  const size_t states = operands - static_cast<size_t>(scanned);
  ONNXD_ASSIGN_OR_RETURN(Body body, MakeBody(node, "body", options));
  return std::unique_ptr<ControlFlow>(
      std::make_unique<Scan>(std::move(body), node, static_cast<size_t>(scanned), states, batched));
}

}  // namespace onnxd
