// ai.onnx.ml TreeEnsembleClassifier and TreeEnsembleRegressor, versions 1 and 3: branches and
// leaves are one list, and a tree's root is the node that is no node's child. Doubles compare as
// doubles, every other type as floats.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/forest_rows.h"
#include "runtime/providers/cpu/post_transform.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

std::optional<TreeMode> ModeOf(std::string_view name) {
  constexpr std::string_view kNames[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                         "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<TreeMode>(found - std::begin(kNames));
}

// Not a copy: lists have an entry for each node.
template <typename T>
const std::vector<T>& ListIn(const Attributes& attributes, std::string_view name) {
  static const std::vector<T> kNone;
  const auto* list = attributes.Find<std::vector<T>>(name);
  return list == nullptr ? kNone : *list;
}

// A list of floats that version 3 may also give as a tensor.
template <typename T>
Result<std::vector<T>> NumbersOf(const Attributes& attributes, const std::string& name) {
  if (const Initializer* tensor = attributes.TensorValue(name + "_as_tensor")) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor values, tensor->Materialize());
    if (!IsFloatOrDouble(values.type())) return DeclineType(name + "_as_tensor", values.type());
    return ElementsAs<T>(values);
  }
  const auto& floats = ListIn<float>(attributes, name);
  return std::vector<T>(floats.begin(), floats.end());
}

// Finds a node by the number of its tree and its own.
class NodeIndex {
 public:
  NodeIndex(const std::vector<int64_t>& trees, const std::vector<int64_t>& nodes)
      : trees_(trees), nodes_(nodes), sorted_(std::min(trees.size(), nodes.size())) {
    std::iota(sorted_.begin(), sorted_.end(), int64_t{0});
    const auto before = [&](int64_t a, int64_t b) { return KeyOf(a) < KeyOf(b); };
    if (!std::is_sorted(sorted_.begin(), sorted_.end(), before)) {
      std::sort(sorted_.begin(), sorted_.end(), before);
    }
  }

  Status CheckUnique() const {
    for (size_t i = 0; i + 1 < sorted_.size(); ++i) {
      const auto [tree, node] = KeyOf(sorted_[i]);
      if (KeyOf(sorted_[i + 1]) == Key(tree, node)) {
        return InvalidArgument(StrCat("tree ", tree, " has two nodes ", node));
      }
    }
    return Status::Ok();
  }

  Result<int64_t> Find(int64_t tree, int64_t node) {
    // Most lists have a tree's nodes one after another.
    if (const int64_t guess = GuessAt(node); Has(guess, {tree, node})) return last_ = guess;
    const auto found =
        std::lower_bound(sorted_.begin(), sorted_.end(), Key(tree, node),
                         [&](int64_t at, const Key& key) { return KeyOf(at) < key; });
    if (found == sorted_.end() || KeyOf(*found) != Key(tree, node)) {
      return InvalidArgument(StrCat("tree ", tree, " has no node ", node));
    }
    return last_ = *found;
  }

 private:
  using Key = std::pair<int64_t, int64_t>;
  Key KeyOf(int64_t at) const {
    return {trees_[static_cast<size_t>(at)], nodes_[static_cast<size_t>(at)]};
  }

  bool Has(int64_t at, const Key& key) const {
    return at >= 0 && at < std::ssize(sorted_) && KeyOf(at) == key;
  }
  // Where a node is if those between it and the last one that was found are all there.
  int64_t GuessAt(int64_t node) const {
    int64_t distance = 0, guess = 0;
    if (sorted_.empty() || __builtin_sub_overflow(node, KeyOf(last_).second, &distance) ||
        __builtin_add_overflow(last_, distance, &guess)) {
      return -1;
    }
    return guess;
  }

  const std::vector<int64_t>&trees_, &nodes_;
  std::vector<int64_t> sorted_;
  int64_t last_ = 0;
};

// Reads the attributes nodes_* and, with a prefix that is the operator's, those of the weights.
template <typename T>
class TreeReader {
 public:
  TreeReader(const Attributes& attributes, std::string_view prefix)
      : attributes_(attributes),
        prefix_(prefix),
        trees_(ListIn<int64_t>(attributes, "nodes_treeids")),
        nodes_(ListIn<int64_t>(attributes, "nodes_nodeids")),
        index_(trees_, nodes_) {}

  Result<TreeList<T>> Read(int64_t targets) {
    list_.targets = targets;
    ONNXD_RETURN_IF_ERROR(index_.CheckUnique());
    ONNXD_RETURN_IF_ERROR(ReadBranches());
    ONNXD_RETURN_IF_ERROR(ReadWeights());
    const std::string aggregate = attributes_.String("aggregate_function", "SUM");
    if (aggregate == "AVERAGE") list_.aggregate = TreeAggregate::kAverage;
    if (aggregate == "MIN") list_.aggregate = TreeAggregate::kMin;
    if (aggregate == "MAX") list_.aggregate = TreeAggregate::kMax;
    return std::move(list_);
  }

 private:
  using Branch = typename TreeList<T>::Branch;

  // What each listed node is: a leaf, or a branch of the list that is made.
  Status ReadBranches() {
    const auto& features = ListIn<int64_t>(attributes_, "nodes_featureids");
    const auto& modes = ListIn<std::string>(attributes_, "nodes_modes");
    const auto& yes = ListIn<int64_t>(attributes_, "nodes_truenodeids");
    const auto& no = ListIn<int64_t>(attributes_, "nodes_falsenodeids");
    const auto& missing = ListIn<int64_t>(attributes_, "nodes_missing_value_tracks_true");
    ONNXD_ASSIGN_OR_RETURN(const auto splits, NumbersOf<T>(attributes_, "nodes_values"));
    const size_t count = nodes_.size();
    for (const size_t size : {trees_.size(), features.size(), modes.size(), yes.size(), no.size(),
                              splits.size(), missing.empty() ? count : missing.size()}) {
      if (size != count) return InvalidArgument("the nodes_* attributes have different lengths");
    }
    if (count == 0) return InvalidArgument("there are no nodes");
    int64_t branches = 0, leaves = 0;
    at_.reserve(count);
    for (const std::string& mode : modes) {
      const bool leaf = mode == "LEAF";
      if (!leaf && !ModeOf(mode)) return InvalidArgument(StrCat("unknown node mode '", mode, "'"));
      at_.push_back({leaf ? leaves++ : branches++, leaf});
    }
    list_.leaves.resize(static_cast<size_t>(leaves));
    list_.nodes.reserve(static_cast<size_t>(branches));
    std::vector<bool> is_child(count, false);
    for (size_t i = 0; i < count; ++i) {
      if (at_[i].leaf) continue;
      ONNXD_ASSIGN_OR_RETURN(const int64_t when_yes, index_.Find(trees_[i], yes[i]));
      ONNXD_ASSIGN_OR_RETURN(const int64_t when_no, index_.Find(trees_[i], no[i]));
      for (const int64_t child : {when_yes, when_no}) {
        if (is_child[static_cast<size_t>(child)]) {
          return InvalidArgument(StrCat("tree ", trees_[i], ": two branches lead to node ",
                                        nodes_[static_cast<size_t>(child)]));
        }
        is_child[static_cast<size_t>(child)] = true;
      }
      list_.nodes.push_back({*ModeOf(modes[i]),
                             !missing.empty() && missing[i] != 0,
                             features[i],
                             splits[i],
                             at_[static_cast<size_t>(when_yes)],
                             at_[static_cast<size_t>(when_no)],
                             {}});
    }
    for (size_t i = 0; i < count; ++i) {
      if (!is_child[i]) list_.roots.push_back(at_[i]);
    }
    return Status::Ok();
  }

  Status ReadWeights() {
    const auto& trees = ListIn<int64_t>(attributes_, prefix_ + "_treeids");
    const auto& nodes = ListIn<int64_t>(attributes_, prefix_ + "_nodeids");
    const auto& targets = ListIn<int64_t>(attributes_, prefix_ + "_ids");
    ONNXD_ASSIGN_OR_RETURN(const auto weights, NumbersOf<T>(attributes_, prefix_ + "_weights"));
    if (nodes.size() != weights.size() || trees.size() != weights.size() ||
        targets.size() != weights.size()) {
      return InvalidArgument(StrCat("the ", prefix_, "_* attributes have different lengths"));
    }
    constexpr int64_t kOnBranch = -1;  // never reached
    std::vector<int64_t> leaf_of(weights.size(), kOnBranch);
    for (size_t i = 0; i < weights.size(); ++i) {
      ONNXD_ASSIGN_OR_RETURN(const int64_t node, index_.Find(trees[i], nodes[i]));
      const Branch& at = at_[static_cast<size_t>(node)];
      if (at.leaf) leaf_of[i] = at.next;
    }
    // Leaves take their weights in the order of the lists.
    std::vector<size_t> order(weights.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (!std::is_sorted(leaf_of.begin(), leaf_of.end())) {
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return leaf_of[a] < leaf_of[b]; });
    }
    list_.weights.reserve(weights.size());
    for (const size_t i : order) {
      if (leaf_of[i] == kOnBranch) continue;
      list_.weights.push_back({targets[i], weights[i]});
      auto& leaf = list_.leaves[static_cast<size_t>(leaf_of[i])];
      const auto end = static_cast<int64_t>(list_.weights.size());
      if (leaf.begin == leaf.end) leaf.begin = end - 1;
      leaf.end = end;
    }
    return Status::Ok();
  }

  const Attributes& attributes_;
  const std::string prefix_;
  const std::vector<int64_t>&trees_, &nodes_;
  NodeIndex index_;
  std::vector<Branch> at_;
  TreeList<T> list_;
};

template <typename T>
struct Ensemble {
  Forest<T> forest;
  std::vector<T> base_values;
  PostTransform post_transform;
  bool one_of_two;  // a classifier's two classes, of which one has weights: the only target
  bool weights_all_positive;
};

constexpr std::string_view kClasses = "class", kTargets = "target";  // prefixes of attributes

// Two classes with weights for one alone become one target: the other's score follows from it.
template <typename T>
bool NarrowToOneTarget(TreeList<T>& list) {
  const auto same = [&](const auto& weight) { return weight.target == list.weights[0].target; };
  const int64_t target = list.weights.empty() ? -1 : list.weights[0].target;
  if (list.targets != 2 || target < 0 || target > 1) return false;
  if (!std::all_of(list.weights.begin(), list.weights.end(), same)) return false;
  for (auto& weight : list.weights) weight.target = 0;
  list.targets = 1;
  return true;
}

template <typename T>
Result<Ensemble<T>> ReadEnsemble(const Node& node, std::string_view prefix, int64_t targets) {
  const Attributes& attributes = node.attributes;
  ONNXD_ASSIGN_OR_RETURN(auto list, TreeReader<T>(attributes, prefix).Read(targets));
  const bool one_of_two = prefix == kClasses && NarrowToOneTarget(list);
  ONNXD_ASSIGN_OR_RETURN(auto forest, Forest<T>::Make(list));
  if (forest.nodes() < static_cast<int64_t>(list.nodes.size())) {
    return InvalidArgument("a tree node is reached from no root");  // a cycle by itself
  }
  ONNXD_ASSIGN_OR_RETURN(auto base_values, NumbersOf<T>(attributes, "base_values"));
  ONNXD_ASSIGN_OR_RETURN(const auto post_transform,
                         PostTransformOf(attributes.String("post_transform", "NONE")));
  const bool positive = std::all_of(list.weights.begin(), list.weights.end(),
                                    [](const auto& weight) { return weight.value >= 0; });
  return Ensemble<T>{std::move(forest), std::move(base_values), post_transform, one_of_two,
                     positive};
}

// The classifier's scores of one row become probabilities and a label.
class Labeller {
 public:
  template <typename T>
  Labeller(const Ensemble<T>& ensemble, int64_t labels)
      : labels_(labels),
        transform_(ensemble.post_transform),
        base_(ensemble.base_values.begin(), ensemble.base_values.end()),
        one_of_two_(ensemble.one_of_two),
        weights_all_positive_(ensemble.weights_all_positive) {}

  // Writes labels_ probabilities and returns the index of the label.
  int64_t operator()(const double* scores, float* out) const {
    if (one_of_two_) return Binary(scores[0], out);
    for (int64_t i = 0; i < labels_; ++i) {
      const bool has_base = base_.size() == static_cast<size_t>(labels_);
      const double base = has_base ? base_[static_cast<size_t>(i)] : 0.0;
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
    if (base_.size() == 1) score += base_[0];
    if (base_.size() == 2) score += base_[1];
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
  std::vector<double> base_;
  bool one_of_two_, weights_all_positive_;
};

// One list or the other.
struct Labels {
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
};

template <typename T>
Result<std::unique_ptr<Kernel>> MakeClassifier(const KernelInfo& info) {
  Labels labels{info.node.attributes.Ints("classlabels_int64s"),
                info.node.attributes.Strings("classlabels_strings")};
  const auto count =
      static_cast<int64_t>(labels.strings.empty() ? labels.ints.size() : labels.strings.size());
  ONNXD_ASSIGN_OR_RETURN(auto ensemble, ReadEnsemble<T>(info.node, kClasses, count));
  const auto forest = std::make_shared<const Forest<T>>(std::move(ensemble.forest));
  const Labeller labeller(ensemble, count);
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const ForestRows rows, ForestRows::Make(context, *forest));
    const bool wants_label = context.HasOutput(0), wants_scores = context.HasOutput(1);
    PreparedKernel prepared;
    prepared.scratch_bytes = rows.scratch_bytes();
    prepared.compute = [=](const KernelContext& k) -> Status {
      Tensor text;
      if (!labels.strings.empty() && wants_label) {
        ONNXD_ASSIGN_OR_RETURN(text, Tensor::Create(DataType::kString, Shape{rows.count()}));
      }
      auto* strings = text.defined() ? text.mutable_data<std::string>() : nullptr;
      auto* ints = wants_label && strings == nullptr ? k.output<int64_t>(0) : nullptr;
      auto* out = wants_scores ? k.output<float>(1) : nullptr;
      rows.ForEach<T>(k, *forest, [&](int64_t row, double* scores) {
        std::vector<float> spare(out == nullptr ? static_cast<size_t>(count) : 0);
        float* probabilities = out == nullptr ? spare.data() : out + row * count;
        const auto label = static_cast<size_t>(labeller(scores, probabilities));
        if (strings != nullptr) strings[row] = labels.strings[label];
        if (ints != nullptr) ints[row] = labels.ints[label];
      });
      if (text.defined()) k.output_value(0) = std::move(text);
      return Status::Ok();
    };
    return prepared;
  });
}

template <typename T>
Result<std::unique_ptr<Kernel>> MakeRegressor(const KernelInfo& info) {
  const int64_t targets = info.node.attributes.Int("n_targets", 1);
  if (targets < 1 || targets > 1 << 20) return InvalidArgument("n_targets is out of range");
  ONNXD_ASSIGN_OR_RETURN(auto ensemble, ReadEnsemble<T>(info.node, kTargets, targets));
  const auto forest = std::make_shared<const Forest<T>>(std::move(ensemble.forest));
  std::vector<double> base(ensemble.base_values.begin(), ensemble.base_values.end());
  base.resize(static_cast<size_t>(targets), 0.0);
  const PostTransform transform = ensemble.post_transform;
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const ForestRows rows, ForestRows::Make(context, *forest));
    PreparedKernel prepared;
    prepared.scratch_bytes = rows.scratch_bytes();
    prepared.compute = [=](const KernelContext& k) {
      rows.ForEach<T>(k, *forest, [&](int64_t row, double* scores) {
        float* out = k.output<float>(0) + row * targets;
        std::transform(scores, scores + targets, base.begin(), out,
                       [](double score, double b) { return static_cast<float>(score + b); });
        ApplyPostTransform(transform, out, targets);
      });
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> Named(Result<std::unique_ptr<Kernel>> kernel, const Node& node) {
  if (kernel.ok()) return kernel;
  return kernel.status().WithContext(Describe(node));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeTreeEnsembleClassifier(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("TreeEnsembleClassifier", type);
  const bool wide = type == DataType::kDouble;
  return Named(wide ? MakeClassifier<double>(info) : MakeClassifier<float>(info), info.node);
}

Result<std::unique_ptr<Kernel>> MakeTreeEnsembleRegressor(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("TreeEnsembleRegressor", type);
  const bool wide = type == DataType::kDouble;
  return Named(wide ? MakeRegressor<double>(info) : MakeRegressor<float>(info), info.node);
}

}  // namespace onnxd
