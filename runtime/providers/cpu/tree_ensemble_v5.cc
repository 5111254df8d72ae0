// ai.onnx.ml TreeEnsemble-5: inner nodes and leaves are separate lists; nodes may ask for
// membership in a set of values.
#include <algorithm>
#include <cmath>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/forest_rows.h"
#include "runtime/providers/cpu/post_transform.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

template <typename T>
Result<std::vector<T>> TensorAttribute(const Node& node, const std::string& name) {
  const Initializer* list = node.attributes.TensorValue(name);
  if (list == nullptr) return std::vector<T>();
  ONNXD_ASSIGN_OR_RETURN(const Tensor tensor, list->Materialize());
  if (!IsConvertible(tensor.type())) return InvalidArgument(StrCat(name, " holds no numbers"));
  return ElementsAs<T>(tensor);
}

// The sets of membership_values follow each other, NaN ends each.
template <typename T>
void ReadMembers(const std::vector<T>& values, std::vector<typename TreeList<T>::Node>& nodes) {
  auto at = values.begin();
  for (auto& node : nodes) {
    if (node.mode != TreeMode::kMember) continue;
    const auto end = std::find_if(at, values.end(), [](T value) { return std::isnan(value); });
    node.members.assign(at, end);
    at = end == values.end() ? end : end + 1;
  }
}

template <typename T>
Result<TreeList<T>> ReadTrees(const Node& node) {
  const Attributes& a = node.attributes;
  ONNXD_ASSIGN_OR_RETURN(const auto modes, TensorAttribute<int64_t>(node, "nodes_modes"));
  ONNXD_ASSIGN_OR_RETURN(const auto splits, TensorAttribute<T>(node, "nodes_splits"));
  ONNXD_ASSIGN_OR_RETURN(const auto weights, TensorAttribute<T>(node, "leaf_weights"));
  ONNXD_ASSIGN_OR_RETURN(const auto members, TensorAttribute<T>(node, "membership_values"));
  const auto features = a.Ints("nodes_featureids"), yes = a.Ints("nodes_truenodeids"),
             no = a.Ints("nodes_falsenodeids"), yes_leaf = a.Ints("nodes_trueleafs"),
             no_leaf = a.Ints("nodes_falseleafs"), targets = a.Ints("leaf_targetids"),
             missing = a.Ints("nodes_missing_value_tracks_true");
  const size_t count = modes.size();
  for (const size_t size : {splits.size(), features.size(), yes.size(), no.size(), yes_leaf.size(),
                            no_leaf.size(), missing.empty() ? count : missing.size()}) {
    if (size != count) return InvalidArgument("the nodes_* attributes have different lengths");
  }
  TreeList<T> list;
  const int64_t count_of_targets = a.Int("n_targets", 1);
  const int64_t aggregate = a.Int("aggregate_function", 1);
  if (count_of_targets < 1 || count_of_targets > 1 << 24 || targets.size() != weights.size()) {
    return InvalidArgument("n_targets or the leaf_* attributes do not fit");
  }
  if (aggregate < 0 || aggregate > 3) return InvalidArgument("aggregate_function is unknown");
  list.targets = count_of_targets;
  list.aggregate = static_cast<TreeAggregate>(aggregate);
  for (size_t i = 0; i < targets.size(); ++i) {
    list.weights.push_back({targets[i], weights[i]});
    list.leaves.push_back({static_cast<int64_t>(i), static_cast<int64_t>(i) + 1});
  }
  for (size_t i = 0; i < count; ++i) {
    if (modes[i] < 0 || modes[i] > 6) {
      return InvalidArgument(StrCat("tree node ", i, " has mode ", modes[i]));
    }
    list.nodes.push_back({static_cast<TreeMode>(modes[i]),
                          !missing.empty() && missing[i] != 0,
                          features[i],
                          splits[i],
                          {yes[i], yes_leaf[i] != 0},
                          {no[i], no_leaf[i] != 0},
                          {}});
  }
  ReadMembers(members, list.nodes);
  for (const int64_t root : a.Ints("tree_roots")) list.roots.push_back({root, false});
  return list;
}

Result<PostTransform> PostTransformAt(int64_t number) {
  static constexpr const char* kNames[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  if (number < 0 || number > 4) return InvalidArgument("post_transform is unknown");
  return PostTransformOf(kNames[number]);
}

// T: the input's and the output's type.
template <typename T>
Result<std::unique_ptr<Kernel>> Make(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const auto list, ReadTrees<T>(info.node));
  ONNXD_ASSIGN_OR_RETURN(auto made, Forest<T>::Make(list));
  ONNXD_ASSIGN_OR_RETURN(const PostTransform transform,
                         PostTransformAt(info.node.attributes.Int("post_transform", 0)));
  const auto forest = std::make_shared<const Forest<T>>(std::move(made));
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const ForestRows rows, ForestRows::Make(context, *forest));
    PreparedKernel prepared;
    prepared.scratch_bytes = rows.scratch_bytes();
    prepared.compute = [=](const KernelContext& k) {
      const int64_t targets = forest->targets();
      rows.ForEach<T>(k, *forest, [&](int64_t row, double* scores) {
        T* out = k.output<T>(0) + row * targets;
        std::transform(scores, scores + targets, out, [](double s) { return static_cast<T>(s); });
        if (transform == PostTransform::kNone) return;
        std::vector<float> floats(out, out + targets);
        ApplyPostTransform(transform, floats.data(), targets);
        std::copy(floats.begin(), floats.end(), out);
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeTreeEnsemble(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsFloatOrDouble(type)) return DeclineType("TreeEnsemble", type);
  auto kernel = type == DataType::kDouble ? Make<double>(info) : Make<float>(info);
  if (!kernel.ok()) return kernel.status().WithContext(Describe(info.node));
  return kernel;
}

}  // namespace onnxd
