// If-1 to If-25: runs one of two subgraphs.
#include "runtime/base/str_cat.h"
#include "runtime/session/control_flow_nodes.h"

namespace onnxd {
namespace {

class Conditional : public ControlFlow {
 public:
  Conditional(Body then_branch, Body else_branch, std::string name)
      : then_(std::move(then_branch)), else_(std::move(else_branch)), name_(std::move(name)) {}

  Result<std::vector<Value>> Run(std::span<const Value> inputs, std::span<const Value> captures,
                                 const RunOptions& options) const override {
    if (!inputs[0].is_tensor() || inputs[0].tensor().type() != DataType::kBool ||
        inputs[0].tensor().ElementCount() != 1) {
      return InvalidArgument(StrCat(name_, ": the condition must be one bool"));
    }
    const Body& branch = *inputs[0].tensor().data<bool>() ? then_ : else_;
    return branch.Run({}, captures, options);
  }

 private:
  Body then_, else_;
  std::string name_;
};

Result<Body> MakeBranch(const Node& node, std::string_view attribute,
                        const ExecutorOptions& options) {
  const std::shared_ptr<Graph> graph = node.attributes.Subgraph(attribute);
  if (graph->outputs.size() != node.outputs.size() || !graph->inputs.empty()) {
    return InvalidArgument(StrCat(Describe(node), " attribute '", attribute, "' has ",
                                  graph->outputs.size(), " outputs and ", graph->inputs.size(),
                                  " inputs, expected ", node.outputs.size(), " and 0"));
  }
  return MakeBody(node, attribute, options);
}

}  // namespace

Result<std::unique_ptr<ControlFlow>> MakeConditional(const Node& node,
                                                     const ExecutorOptions& options) {
  ONNXD_ASSIGN_OR_RETURN(Body then_branch, MakeBranch(node, "then_branch", options));
  ONNXD_ASSIGN_OR_RETURN(Body else_branch, MakeBranch(node, "else_branch", options));
  return std::unique_ptr<ControlFlow>(std::make_unique<Conditional>(
      std::move(then_branch), std::move(else_branch), Describe(node)));
}

}  // namespace onnxd
