#include "runtime/session/conditional.h"

#include "runtime/base/str_cat.h"
#include "runtime/session/graph_executor.h"

namespace onnxd {
namespace {

// A branch and the positions of the node's captures that it uses.
struct Branch {
  std::unique_ptr<GraphExecutor> executor;
  std::vector<size_t> captures;
};

Result<Branch> MakeBranch(const Node& node, std::string_view attribute,
                          const ExecutorOptions& options) {
  Branch branch;
  const std::shared_ptr<Graph> graph = node.attributes.Subgraph(attribute);
  if (graph->outputs.size() != node.outputs.size() || !graph->inputs.empty()) {
    return InvalidArgument(StrCat(Describe(node), " attribute '", attribute, "' has ",
                                  graph->outputs.size(), " outputs and ", graph->inputs.size(),
                                  " inputs, expected ", node.outputs.size(), " and 0"));
  }
  for (size_t i = 0; i < graph->captures.size(); ++i) {
    if (graph->captures[i] != kNoValue) branch.captures.push_back(i);
  }
  ONNXD_ASSIGN_OR_RETURN(branch.executor, GraphExecutor::Create(graph, options));
  return branch;
}

class Conditional : public ControlFlow {
 public:
  Conditional(Branch then_branch, Branch else_branch, std::string name)
      : then_(std::move(then_branch)), else_(std::move(else_branch)), name_(std::move(name)) {}

  Result<std::vector<Value>> Run(std::span<const Value> inputs, std::span<const Value> captures,
                                 const RunOptions& options) const override {
    if (!inputs[0].is_tensor() || inputs[0].tensor().type() != DataType::kBool ||
        inputs[0].tensor().ElementCount() != 1) {
      return InvalidArgument(StrCat(name_, ": the condition must be one bool"));
    }
    const Branch& branch = *inputs[0].tensor().data<bool>() ? then_ : else_;
    std::vector<Value> used;
    for (const size_t i : branch.captures) used.push_back(captures[i]);
    return branch.executor->Run(used, options);
  }

 private:
  Branch then_, else_;
  std::string name_;
};

}  // namespace

Result<std::unique_ptr<ControlFlow>> MakeConditional(const Node& node,
                                                     const ExecutorOptions& options) {
  ONNXD_ASSIGN_OR_RETURN(Branch then_branch, MakeBranch(node, "then_branch", options));
  ONNXD_ASSIGN_OR_RETURN(Branch else_branch, MakeBranch(node, "else_branch", options));
  return std::unique_ptr<ControlFlow>(std::make_unique<Conditional>(
      std::move(then_branch), std::move(else_branch), Describe(node)));
}

}  // namespace onnxd
