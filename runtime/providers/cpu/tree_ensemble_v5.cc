// ai.onnx.ml TreeEnsemble-5: inner nodes and leaves are separate lists; nodes may ask for
// membership in a set of values.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/post_transform.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

enum class Mode : uint8_t { kLeq, kLt, kGte, kGt, kEq, kNeq, kMember };
enum class Aggregate { kAverage, kSum, kMin, kMax };

struct Branch {
  int64_t next = 0;  // an inner node, or a leaf
  bool leaf = false;
};

struct InnerNode {
  Mode mode;
  int64_t feature;
  double split;
  Branch yes, no;
  bool missing_tracks_true;
  std::vector<double> members;  // of kMember
};

struct Leaf {
  int64_t target;
  double weight;
};

struct Forest {
  std::vector<InnerNode> nodes;
  std::vector<Leaf> leaves;
  std::vector<int64_t> roots;
  int64_t targets = 1, features = 0;
  Aggregate aggregate = Aggregate::kSum;
  PostTransform transform = PostTransform::kNone;

  const Leaf& Walk(const double* x, int64_t root) const {
    Branch at{root, false};
    while (!at.leaf) {
      const InnerNode& node = nodes[static_cast<size_t>(at.next)];
      at = Test(node, x[node.feature]) ? node.yes : node.no;
    }
    return leaves[static_cast<size_t>(at.next)];
  }

  static bool Test(const InnerNode& node, double value) {
    if (std::isnan(value) && node.missing_tracks_true) return true;
    switch (node.mode) {
      case Mode::kLeq:
        return value <= node.split;
      case Mode::kLt:
        return value < node.split;
      case Mode::kGte:
        return value >= node.split;
      case Mode::kGt:
        return value > node.split;
      case Mode::kEq:
        return value == node.split;
      case Mode::kNeq:
        return value != node.split;
      default:
        return std::find(node.members.begin(), node.members.end(), value) != node.members.end();
    }
  }
};

template <typename T>
Result<std::vector<T>> TensorAttribute(const Node& node, const std::string& name) {
  const Initializer* list = node.attributes.TensorValue(name);
  if (list == nullptr) return std::vector<T>();
  ONNXD_ASSIGN_OR_RETURN(const Tensor tensor, list->Materialize());
  if (!IsConvertible(tensor.type())) return InvalidArgument(StrCat(name, " holds no numbers"));
  return ElementsAs<T>(tensor);
}

// Every walk ends: from each root, no inner node is reached twice.
Status CheckWalks(const Forest& forest) {
  std::vector<bool> seen(forest.nodes.size(), false);
  std::vector<int64_t> stack(forest.roots);
  while (!stack.empty()) {
    const auto at = static_cast<size_t>(stack.back());
    stack.pop_back();
    if (seen[at]) return InvalidArgument("a tree node is reached twice");
    seen[at] = true;
    for (const Branch& branch : {forest.nodes[at].yes, forest.nodes[at].no}) {
      if (!branch.leaf) stack.push_back(branch.next);
    }
  }
  return Status::Ok();
}

Result<Forest> ReadForest(const Node& node) {
  const Attributes& a = node.attributes;
  ONNXD_ASSIGN_OR_RETURN(const auto modes, TensorAttribute<int64_t>(node, "nodes_modes"));
  ONNXD_ASSIGN_OR_RETURN(const auto splits, TensorAttribute<double>(node, "nodes_splits"));
  ONNXD_ASSIGN_OR_RETURN(const auto weights, TensorAttribute<double>(node, "leaf_weights"));
  ONNXD_ASSIGN_OR_RETURN(const auto members, TensorAttribute<double>(node, "membership_values"));
  const auto features = a.Ints("nodes_featureids"), yes = a.Ints("nodes_truenodeids"),
             no = a.Ints("nodes_falsenodeids"), yes_leaf = a.Ints("nodes_trueleafs"),
             no_leaf = a.Ints("nodes_falseleafs"), targets = a.Ints("leaf_targetids"),
             missing = a.Ints("nodes_missing_value_tracks_true");
  const size_t count = modes.size();
  for (const size_t size : {splits.size(), features.size(), yes.size(), no.size(), yes_leaf.size(),
                            no_leaf.size(), missing.empty() ? count : missing.size()}) {
    if (size != count) return InvalidArgument("the nodes_* attributes have different lengths");
  }
  Forest forest;
  forest.targets = a.Int("n_targets", 1);
  if (forest.targets < 1 || forest.targets > (int64_t{1} << 24) ||
      targets.size() != weights.size()) {
    return InvalidArgument("n_targets or the leaf_* attributes do not fit");
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0 || targets[i] >= forest.targets) return InvalidArgument("a leaf target");
    forest.leaves.push_back({targets[i], weights[i]});
  }
  const auto valid = [&](int64_t next, int64_t leaf) {
    const size_t size = leaf != 0 ? forest.leaves.size() : count;
    return next >= 0 && next < static_cast<int64_t>(size);
  };
  size_t member = 0;
  for (size_t i = 0; i < count; ++i) {
    if (modes[i] < 0 || modes[i] > 6 || features[i] < 0 || features[i] > (int64_t{1} << 30) ||
        !valid(yes[i], yes_leaf[i]) || !valid(no[i], no_leaf[i])) {
      return InvalidArgument(StrCat("tree node ", i, " is out of range"));
    }
    InnerNode inner{static_cast<Mode>(modes[i]),
                    features[i],
                    splits[i],
                    {yes[i], yes_leaf[i] != 0},
                    {no[i], no_leaf[i] != 0},
                    !missing.empty() && missing[i] != 0,
                    {}};
    if (inner.mode == Mode::kMember) {  // sets follow each other, NaN ends each
      while (member < members.size() && !std::isnan(members[member])) {
        inner.members.push_back(members[member++]);
      }
      ++member;
    }
    forest.features = std::max(forest.features, features[i] + 1);
    forest.nodes.push_back(std::move(inner));
  }
  forest.roots = a.Ints("tree_roots");
  for (const int64_t root : forest.roots) {
    if (root < 0 || root >= static_cast<int64_t>(count)) return InvalidArgument("a tree root");
  }
  ONNXD_RETURN_IF_ERROR(CheckWalks(forest));
  const int64_t aggregate = a.Int("aggregate_function", 1), transform = a.Int("post_transform", 0);
  if (aggregate < 0 || aggregate > 3 || transform < 0 || transform > 4) {
    return InvalidArgument("aggregate_function or post_transform is unknown");
  }
  forest.aggregate = static_cast<Aggregate>(aggregate);
  static constexpr const char* kTransforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO",
                                                "PROBIT"};
  ONNXD_ASSIGN_OR_RETURN(forest.transform, PostTransformOf(kTransforms[transform]));
  return forest;
}

Result<std::vector<Value>> Evaluate(const Node& node, std::span<const Value> inputs,
                                    const Forest& forest) {
  const Tensor& x = inputs[0].tensor();
  if (x.shape().rank() != 2 || x.shape()[1] < forest.features) {
    return InvalidArgument(StrCat(Describe(node), ": input of shape ", x.shape().ToString(),
                                  ", the trees read ", forest.features, " features"));
  }
  const std::vector<double> in = ElementsAs<double>(x);
  const int64_t rows = x.shape()[0], width = x.shape()[1];
  std::vector<float> out;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> sums(static_cast<size_t>(forest.targets), 0);
    std::vector<bool> touched(sums.size(), false);
    for (const int64_t root : forest.roots) {
      const Leaf& leaf = forest.Walk(in.data() + r * width, root);
      const auto at = static_cast<size_t>(leaf.target);
      double& sum = sums[at];
      if (forest.aggregate == Aggregate::kMin && touched[at]) {
        sum = std::min(sum, leaf.weight);
      } else if (forest.aggregate == Aggregate::kMax && touched[at]) {
        sum = std::max(sum, leaf.weight);
      } else {
        sum = (touched[at] ? sum : 0) + leaf.weight;
      }
      touched[at] = true;
    }
    std::vector<float> row;
    for (const double sum : sums) {
      const bool average = forest.aggregate == Aggregate::kAverage;
      row.push_back(static_cast<float>(
          average ? sum / static_cast<double>(std::max<size_t>(forest.roots.size(), 1)) : sum));
    }
    ApplyPostTransform(forest.transform, row.data(), forest.targets);
    out.insert(out.end(), row.begin(), row.end());
  }
  return OneValue(TensorFrom(x.type(), Shape{rows, forest.targets}, out));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeTreeEnsemble(const KernelInfo& info) {
  if (!IsFloatOrDouble(info.InputType(0))) return DeclineType("TreeEnsemble", info.InputType(0));
  auto read = ReadForest(info.node);
  if (!read.ok()) return read.status().WithContext(Describe(info.node));
  auto forest = std::make_shared<const Forest>(std::move(*read));
  return MakeEagerKernel([forest](const Node& node, std::span<const Value> inputs) {
    return Evaluate(node, inputs, *forest);
  });
}

}  // namespace onnxd
