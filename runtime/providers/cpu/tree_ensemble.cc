// ai.onnx.ml TreeEnsembleClassifier and TreeEnsembleRegressor, versions 1 and 3.
//
// The flat attribute arrays become one array of nodes in which every index was checked, so that
// evaluation follows indices without looking. Comparisons happen in float, as the files store them.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/post_transform.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

enum class Mode : uint8_t { kLeq, kLt, kGte, kGt, kEq, kNeq, kLeaf };

struct TreeNode {
  float value;
  int32_t feature;
  int32_t yes, no;  // node indices; for a leaf: range [yes, no) of leaf weights
  Mode mode;
  bool missing_tracks_true;
};

struct LeafWeight {
  int32_t target;
  float weight;
};

struct Ensemble {
  std::vector<TreeNode> nodes;
  std::vector<int32_t> roots;
  std::vector<LeafWeight> weights;
  std::vector<float> base_values;
  int64_t targets = 0;
  int64_t features = 0;  // the input must have at least as many
  std::string aggregate;
  PostTransform post_transform = PostTransform::kNone;
};

std::optional<Mode> ModeOf(std::string_view name) {
  static const std::map<std::string_view, Mode> modes = {
      {"BRANCH_LEQ", Mode::kLeq}, {"BRANCH_LT", Mode::kLt}, {"BRANCH_GTE", Mode::kGte},
      {"BRANCH_GT", Mode::kGt},   {"BRANCH_EQ", Mode::kEq}, {"BRANCH_NEQ", Mode::kNeq},
      {"LEAF", Mode::kLeaf}};
  const auto found = modes.find(name);
  return found == modes.end() ? std::nullopt : std::optional(found->second);
}

// A float list that version 3 may also give as a double tensor.
Result<std::vector<float>> FloatsOf(const Attributes& attributes, const std::string& name) {
  if (const Initializer* tensor = attributes.TensorValue(name + "_as_tensor")) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor values, tensor->Materialize());
    if (values.type() != DataType::kFloat) {
      return Unimplemented(
          StrCat(name, "_as_tensor of type ", DataTypeName(values.type()), " is not supported"));
    }
    const auto elements = values.elements<float>();
    return std::vector<float>(elements.begin(), elements.end());
  }
  return attributes.Floats(name);
}

using NodeKey = std::pair<int64_t, int64_t>;  // tree, node

Status CheckTrees(const Ensemble& ensemble) {
  // Children come from attributes: a node reached twice would be a cycle or a shared subtree.
  std::vector<bool> seen(ensemble.nodes.size(), false);
  std::vector<int32_t> stack(ensemble.roots);
  while (!stack.empty()) {
    const auto at = static_cast<size_t>(stack.back());
    stack.pop_back();
    if (seen[at]) return InvalidArgument("a tree node is reached twice");
    seen[at] = true;
    if (ensemble.nodes[at].mode == Mode::kLeaf) continue;
    stack.push_back(ensemble.nodes[at].yes);
    stack.push_back(ensemble.nodes[at].no);
  }
  // Nodes that no root reaches would be a cycle by themselves.
  const bool all = std::find(seen.begin(), seen.end(), false) == seen.end();
  return all ? Status::Ok() : InvalidArgument("a tree node is reached from no root");
}

Result<Ensemble> ReadEnsemble(const Node& node, const std::string& prefix, int64_t targets) {
  const Attributes& attributes = node.attributes;
  const auto tree_ids = attributes.Ints("nodes_treeids");
  const auto node_ids = attributes.Ints("nodes_nodeids");
  const auto feature_ids = attributes.Ints("nodes_featureids");
  const auto modes = attributes.Strings("nodes_modes");
  const auto yes_ids = attributes.Ints("nodes_truenodeids");
  const auto no_ids = attributes.Ints("nodes_falsenodeids");
  const auto missing = attributes.Ints("nodes_missing_value_tracks_true");
  ONNXD_ASSIGN_OR_RETURN(const auto values, FloatsOf(attributes, "nodes_values"));
  const size_t count = node_ids.size();
  if (count == 0 || tree_ids.size() != count || feature_ids.size() != count ||
      modes.size() != count || yes_ids.size() != count || no_ids.size() != count ||
      values.size() != count || (!missing.empty() && missing.size() != count) ||
      count > (size_t{1} << 30)) {
    return InvalidArgument("the nodes_* attributes have different lengths");
  }
  std::map<NodeKey, int32_t> index;
  for (size_t i = 0; i < count; ++i) {
    if (!index.emplace(NodeKey{tree_ids[i], node_ids[i]}, static_cast<int32_t>(i)).second) {
      return InvalidArgument(StrCat("tree ", tree_ids[i], " has two nodes ", node_ids[i]));
    }
  }
  const auto child = [&](int64_t tree, int64_t id) -> Result<int32_t> {
    const auto found = index.find({tree, id});
    if (found == index.end()) return InvalidArgument(StrCat("tree ", tree, " has no node ", id));
    return found->second;
  };
  Ensemble ensemble;
  ensemble.targets = targets;
  std::vector<bool> is_child(count, false);
  for (size_t i = 0; i < count; ++i) {
    const auto mode = ModeOf(modes[i]);
    if (!mode) return InvalidArgument(StrCat("unknown node mode '", modes[i], "'"));
    TreeNode tree_node{values[i], 0, 0, 0, *mode, !missing.empty() && missing[i] != 0};
    if (*mode != Mode::kLeaf) {
      if (feature_ids[i] < 0 || feature_ids[i] > (int64_t{1} << 30)) {
        return InvalidArgument(StrCat("feature id ", feature_ids[i]));
      }
      tree_node.feature = static_cast<int32_t>(feature_ids[i]);
      ensemble.features = std::max(ensemble.features, feature_ids[i] + 1);
      ONNXD_ASSIGN_OR_RETURN(tree_node.yes, child(tree_ids[i], yes_ids[i]));
      ONNXD_ASSIGN_OR_RETURN(tree_node.no, child(tree_ids[i], no_ids[i]));
      is_child[static_cast<size_t>(tree_node.yes)] = true;
      is_child[static_cast<size_t>(tree_node.no)] = true;
    }
    ensemble.nodes.push_back(tree_node);
  }
  for (size_t i = 0; i < count; ++i) {
    if (!is_child[i]) ensemble.roots.push_back(static_cast<int32_t>(i));
  }
  // Leaf weights, grouped by leaf.
  const auto weight_trees = attributes.Ints(prefix + "_treeids");
  const auto weight_nodes = attributes.Ints(prefix + "_nodeids");
  const auto weight_targets = attributes.Ints(prefix + "_ids");
  ONNXD_ASSIGN_OR_RETURN(const auto weights, FloatsOf(attributes, prefix + "_weights"));
  if (weight_nodes.size() != weights.size() || weight_trees.size() != weights.size() ||
      weight_targets.size() != weights.size()) {
    return InvalidArgument(StrCat("the ", prefix, "_* attributes have different lengths"));
  }
  std::map<int32_t, std::vector<LeafWeight>> by_leaf;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weight_targets[i] < 0 || weight_targets[i] >= targets) {
      return InvalidArgument(StrCat(prefix, "_ids holds ", weight_targets[i], " of ", targets));
    }
    ONNXD_ASSIGN_OR_RETURN(const int32_t leaf, child(weight_trees[i], weight_nodes[i]));
    by_leaf[leaf].push_back({static_cast<int32_t>(weight_targets[i]), weights[i]});
  }
  for (const auto& [leaf, leaf_weights] : by_leaf) {
    TreeNode& tree_node = ensemble.nodes[static_cast<size_t>(leaf)];
    if (tree_node.mode != Mode::kLeaf) continue;  // weights on branches are never reached
    tree_node.yes = static_cast<int32_t>(ensemble.weights.size());
    ensemble.weights.insert(ensemble.weights.end(), leaf_weights.begin(), leaf_weights.end());
    tree_node.no = static_cast<int32_t>(ensemble.weights.size());
  }
  ONNXD_RETURN_IF_ERROR(CheckTrees(ensemble));
  ONNXD_ASSIGN_OR_RETURN(ensemble.base_values, FloatsOf(attributes, "base_values"));
  ONNXD_ASSIGN_OR_RETURN(ensemble.post_transform,
                         PostTransformOf(attributes.String("post_transform", "NONE")));
  ensemble.aggregate = attributes.String("aggregate_function", "SUM");
  return ensemble;
}

bool TakesYes(const TreeNode& node, float x) {
  if (std::isnan(x)) return node.missing_tracks_true;
  switch (node.mode) {
    case Mode::kLeq:
      return x <= node.value;
    case Mode::kLt:
      return x < node.value;
    case Mode::kGte:
      return x >= node.value;
    case Mode::kGt:
      return x > node.value;
    case Mode::kEq:
      return x == node.value;
    case Mode::kNeq:
      return x != node.value;
    case Mode::kLeaf:
      break;
  }
  return false;
}

const TreeNode& FindLeaf(const Ensemble& ensemble, int32_t root, const float* row) {
  const TreeNode* node = &ensemble.nodes[static_cast<size_t>(root)];
  while (node->mode != Mode::kLeaf) {
    const int32_t next = TakesYes(*node, row[node->feature]) ? node->yes : node->no;
    node = &ensemble.nodes[static_cast<size_t>(next)];
  }
  return *node;
}

// Sums in double over the trees, as the order of many float sums would show.
void Scores(const Ensemble& ensemble, const float* row, double* scores, bool* touched) {
  std::fill_n(scores, ensemble.targets, 0.0);
  std::fill_n(touched, ensemble.targets, false);
  const bool minimum = ensemble.aggregate == "MIN", maximum = ensemble.aggregate == "MAX";
  for (const int32_t root : ensemble.roots) {
    const TreeNode& leaf = FindLeaf(ensemble, root, row);
    for (int32_t i = leaf.yes; i < leaf.no; ++i) {
      const LeafWeight& w = ensemble.weights[static_cast<size_t>(i)];
      double& score = scores[w.target];
      const double weight = static_cast<double>(w.weight);
      if ((minimum || maximum) && touched[w.target]) {
        score = minimum ? std::min(score, weight) : std::max(score, weight);
      } else {
        score += weight;
      }
      touched[w.target] = true;
    }
  }
  if (ensemble.aggregate == "AVERAGE") {
    for (int64_t t = 0; t < ensemble.targets; ++t) {
      scores[t] /= static_cast<double>(ensemble.roots.size());
    }
  }
}

struct Rows {
  int64_t count, width;
};

Result<Rows> RowsOf(const PrepareContext& context, int64_t features) {
  const Shape& shape = context.InputShape(0);
  if (shape.rank() < 1 || shape.rank() > 2) {
    return InvalidArgument(
        StrCat(Describe(context.node), ": the input must be a matrix, it is ", shape.ToString()));
  }
  const Rows rows{shape.rank() == 2 ? shape[0] : 1, shape[shape.rank() - 1]};
  if (rows.width < features) {
    return InvalidArgument(StrCat(Describe(context.node), ": the input has ", rows.width,
                                  " features, the trees use ", features));
  }
  return rows;
}

// The input as float rows; other numbers are converted into scratch.
const float* FloatRows(const KernelContext& k, DataType type, int64_t count) {
  if (type == DataType::kFloat) return k.input<float>(0);
  float* converted = k.scratch<float>();
  DispatchNumber(type, [&]<typename T>() {
    for (int64_t i = 0; i < count; ++i) converted[i] = static_cast<float>(k.input<T>(0)[i]);
  });
  return converted;
}

// The classifier's scores of one row become probabilities and a label.
class Labeller {
 public:
  Labeller(const Ensemble& ensemble, size_t labels)
      : labels_(static_cast<int64_t>(labels)), transform_(ensemble.post_transform) {
    bool one_target = labels == 2;
    weights_all_positive_ = true;
    for (const LeafWeight& weight : ensemble.weights) {
      one_target = one_target && weight.target == ensemble.weights[0].target;
      weights_all_positive_ = weights_all_positive_ && weight.weight >= 0;
    }
    single_ = one_target && !ensemble.weights.empty();
    single_target_ = ensemble.weights.empty() ? 0 : ensemble.weights[0].target;
    base_ = ensemble.base_values;
  }

  // Writes labels_ probabilities and returns the index of the label.
  int64_t operator()(const double* scores, float* out) const {
    if (single_) return Binary(scores[single_target_], out);
    for (int64_t i = 0; i < labels_; ++i) {
      const double base = base_.size() == static_cast<size_t>(labels_)
                              ? static_cast<double>(base_[static_cast<size_t>(i)])
                              : 0.0;
      out[i] = static_cast<float>(scores[i] + base);
    }
    const int64_t best = std::max_element(out, out + labels_) - out;
    ApplyPostTransform(transform_, out, labels_);
    return best;
  }

 private:
  // Two classes with weights for one alone: the other one's score follows. With weights that are
  // probabilities (none negative) it is 1 - p and 0.5 decides, else it is -s and the sign does.
  int64_t Binary(double score, float* out) const {
    if (base_.size() == 1) score += static_cast<double>(base_[0]);
    if (base_.size() == 2) score += static_cast<double>(base_[1]);
    const auto s = static_cast<float>(score);
    const bool positive = weights_all_positive_ ? s > 0.5f : s > 0.0f;
    if (transform_ == PostTransform::kLogistic) {
      const float p = 1.0f / (1.0f + std::exp(-s));
      out[0] = 1.0f - p;
      out[1] = p;
    } else {
      out[0] = weights_all_positive_ && transform_ == PostTransform::kNone ? 1.0f - s : -s;
      out[1] = s;
      if (transform_ != PostTransform::kNone) ApplyPostTransform(transform_, out, 2);
    }
    return positive ? 1 : 0;
  }

  int64_t labels_;
  PostTransform transform_;
  bool single_ = false, weights_all_positive_ = true;
  int32_t single_target_ = 0;
  std::vector<float> base_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeTreeEnsembleClassifier(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("TreeEnsembleClassifier", type);
  const auto ints = info.node.attributes.Ints("classlabels_int64s");
  const auto strings = info.node.attributes.Strings("classlabels_strings");
  const size_t labels = std::max(ints.size(), strings.size());
  auto read = ReadEnsemble(info.node, "class", static_cast<int64_t>(labels));
  if (!read.ok()) return read.status().WithContext(Describe(info.node));
  const auto ensemble = std::make_shared<const Ensemble>(std::move(*read));
  const Labeller labeller(*ensemble, labels);
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const Rows rows, RowsOf(context, ensemble->features));
    const int64_t count = static_cast<int64_t>(labels);
    const size_t converted = type == DataType::kFloat
                                 ? 0
                                 : static_cast<size_t>((rows.count * rows.width + 15) / 16 * 64);
    const bool wants_label = context.HasOutput(0), wants_scores = context.HasOutput(1);
    PreparedKernel prepared;
    // Scores in double, flags, and probabilities nobody asked for.
    prepared.scratch_bytes =
        converted + labels * (sizeof(double) + sizeof(float) + sizeof(bool)) + 64;
    prepared.compute = [=](const KernelContext& k) -> Status {
      const float* in = FloatRows(k, type, rows.count * rows.width);
      auto* scores = reinterpret_cast<double*>(k.scratch<std::byte>() + converted);
      auto* spare = reinterpret_cast<float*>(scores + count);
      auto* touched = reinterpret_cast<bool*>(spare + count);
      Tensor text;
      if (!strings.empty() && wants_label) {
        ONNXD_ASSIGN_OR_RETURN(text, Tensor::Create(DataType::kString, Shape{rows.count}));
      }
      for (int64_t row = 0; row < rows.count; ++row) {
        Scores(*ensemble, in + row * rows.width, scores, touched);
        float* out = wants_scores ? k.output<float>(1) + row * count : spare;
        const auto label = static_cast<size_t>(labeller(scores, out));
        if (!wants_label) continue;
        if (strings.empty()) {
          k.output<int64_t>(0)[row] = ints[label];
        } else {
          text.mutable_data<std::string>()[row] = strings[label];
        }
      }
      if (text.defined()) k.output_value(0) = std::move(text);
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeTreeEnsembleRegressor(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("TreeEnsembleRegressor", type);
  const int64_t targets = info.node.attributes.Int("n_targets", 1);
  if (targets < 1 || targets > 1 << 20) return InvalidArgument("n_targets is out of range");
  auto read = ReadEnsemble(info.node, "target", targets);
  if (!read.ok()) return read.status().WithContext(Describe(info.node));
  const auto ensemble = std::make_shared<const Ensemble>(std::move(*read));
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const Rows rows, RowsOf(context, ensemble->features));
    const size_t converted = type == DataType::kFloat
                                 ? 0
                                 : static_cast<size_t>((rows.count * rows.width + 15) / 16 * 64);
    PreparedKernel prepared;
    prepared.scratch_bytes =
        converted + static_cast<size_t>(targets) * (sizeof(double) + sizeof(bool)) + 64;
    prepared.compute = [=](const KernelContext& k) {
      const float* in = FloatRows(k, type, rows.count * rows.width);
      auto* scores = reinterpret_cast<double*>(k.scratch<std::byte>() + converted);
      auto* touched = reinterpret_cast<bool*>(scores + targets);
      for (int64_t row = 0; row < rows.count; ++row) {
        Scores(*ensemble, in + row * rows.width, scores, touched);
        float* out = k.output<float>(0) + row * targets;
        for (int64_t t = 0; t < targets; ++t) {
          const double base =
              static_cast<size_t>(t) < ensemble->base_values.size()
                  ? static_cast<double>(ensemble->base_values[static_cast<size_t>(t)])
                  : 0.0;
          out[t] = static_cast<float>(scores[t] + base);
        }
        ApplyPostTransform(ensemble->post_transform, out, targets);
      }
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
