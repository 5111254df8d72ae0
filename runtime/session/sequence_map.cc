// SequenceMap-17: a body over the elements of a sequence.
#include "runtime/base/str_cat.h"
#include "runtime/session/control_flow_nodes.h"

namespace onnxd {
namespace {

class SequenceMap : public ControlFlow {
 public:
  SequenceMap(Body body, std::string name) : body_(std::move(body)), name_(std::move(name)) {}

  Result<std::vector<Value>> Run(std::span<const Value> inputs, std::span<const Value> captures,
                                 const RunOptions& options) const override {
    const Sequence* first = inputs[0].sequence();
    if (first == nullptr) return InvalidArgument(StrCat(name_, ": input 0 is no sequence"));
    const size_t length = first->elements.size();
    std::vector<std::shared_ptr<Sequence>> outputs;
    for (size_t i = 0; i < body_.graph->outputs.size(); ++i) {
      outputs.push_back(std::make_shared<Sequence>());
    }
    for (size_t at = 0; at < length; ++at) {
      std::vector<Value> operands;
      for (const Value& input : inputs) {
        const Sequence* sequence = input.sequence();
        if (sequence != nullptr && sequence->elements.size() != length) {
          return InvalidArgument(StrCat(name_, ": the sequences have different lengths"));
        }
        operands.push_back(sequence != nullptr ? sequence->elements[at] : input);
      }
      ONNXD_ASSIGN_OR_RETURN(std::vector<Value> results,
                             body_.Run(std::move(operands), captures, options));
      for (size_t i = 0; i < outputs.size(); ++i) {
        outputs[i]->elements.push_back(std::move(results[i]));
      }
    }
    return std::vector<Value>(outputs.begin(), outputs.end());
  }

 private:
  Body body_;
  std::string name_;
};

}  // namespace

Result<std::unique_ptr<ControlFlow>> MakeSequenceMap(const Node& node,
                                                     const ExecutorOptions& options) {
  const std::shared_ptr<Graph> graph = node.attributes.Subgraph("body");
  if (graph->inputs.size() != node.inputs.size() || graph->outputs.size() != node.outputs.size()) {
    return InvalidArgument(StrCat(Describe(node), ": the body has ", graph->inputs.size(),
                                  " inputs and ", graph->outputs.size(), " outputs"));
  }
  ONNXD_ASSIGN_OR_RETURN(Body body, MakeBody(node, "body", options));
  return std::unique_ptr<ControlFlow>(
      std::make_unique<SequenceMap>(std::move(body), Describe(node)));
}

}  // namespace onnxd
