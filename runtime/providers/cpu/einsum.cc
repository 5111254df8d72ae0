// Einsum-12: operands are multiplied pair by pair; labels that no later operand and no output has
// are summed at once.
#include "runtime/ops/einsum.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/base/checked_math.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

template <typename T>
struct Term {
  std::vector<int> labels;
  Shape shape;
  std::vector<T> elements;
};

using Extents = std::map<int, int64_t>;

// Multiplications of one pair of operands: minutes, not hours.
constexpr int64_t kMaxSteps = int64_t{1} << 38;

// Elements of `term` per step of each label of `order`; 0 for labels it lacks or broadcasts.
template <typename T>
std::vector<int64_t> StridesFor(const Term<T>& term, const std::vector<int>& order) {
  const std::vector<int64_t> dense = DenseStrides(term.shape);
  std::vector<int64_t> strides(order.size(), 0);
  for (size_t d = 0; d < term.labels.size(); ++d) {
    if (term.shape[static_cast<int>(d)] == 1) continue;
    const auto at = std::find(order.begin(), order.end(), term.labels[d]);
    strides[static_cast<size_t>(at - order.begin())] += dense[d];  // repeated labels: diagonals
  }
  return strides;
}

// Sums a * b over every label outside `kept`.
template <typename T>
Result<Term<T>> Contract(const Term<T>& a, const Term<T>& b, const std::vector<int>& kept,
                         const Extents& extents) {
  std::vector<int> order = kept;
  for (const auto* labels : {&a.labels, &b.labels}) {
    for (const int label : *labels) {
      if (std::find(order.begin(), order.end(), label) == order.end()) order.push_back(label);
    }
  }
  Term<T> out;
  out.labels = kept;
  StridedLoop<3> loop;
  for (size_t i = 0; i < order.size(); ++i) {
    loop.dims.push_back(extents.at(order[i]));
    if (i < kept.size()) out.shape.Append(extents.at(order[i]));
  }
  ONNXD_RETURN_IF_ERROR(out.shape.Validate());
  out.elements.assign(static_cast<size_t>(out.shape.ElementCount()), T(0));
  loop.strides[0] = DenseStrides(out.shape);
  loop.strides[0].resize(order.size(), 0);
  loop.strides[1] = StridesFor(a, order);
  loop.strides[2] = StridesFor(b, order);
  int64_t steps = 1;
  for (const int64_t extent : loop.dims) steps = SaturatingMultiply(steps, extent);
  if (steps > kMaxSteps) {
    return ResourceExhausted(StrCat("Einsum would take ", steps, " multiplications"));
  }
  if (steps == 0) return out;
  loop.Merge();
  loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 3>& at) {
    for (int64_t i = 0; i < loop.inner_count(); ++i) {
      out.elements[static_cast<size_t>(at[0] + i * loop.inner_stride(0))] +=
          a.elements[static_cast<size_t>(at[1] + i * loop.inner_stride(1))] *
          b.elements[static_cast<size_t>(at[2] + i * loop.inner_stride(2))];
    }
  });
  return out;
}

template <typename T>
Result<std::vector<Value>> Evaluate(const Node& node, std::span<const Value> inputs) {
  std::vector<int> ranks;
  for (const Value& input : inputs) ranks.push_back(input.tensor().shape().rank());
  ONNXD_ASSIGN_OR_RETURN(const EinsumEquation equation, ParseEinsum(node, ranks));
  Extents extents;
  std::vector<Term<T>> terms;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& tensor = inputs[i].tensor();
    terms.push_back({equation.inputs[i], tensor.shape(), ElementsAs<T>(tensor)});
    for (size_t d = 0; d < equation.inputs[i].size(); ++d) {
      const int64_t own = tensor.shape()[static_cast<int>(d)];
      int64_t& extent = extents.emplace(equation.inputs[i][d], own).first->second;
      if (extent == 1) extent = own;
      if (own != 1 && own != extent) {
        return InvalidArgument(
            StrCat(Describe(node), ": a label stands for ", extent, " and ", own));
      }
    }
  }
  Term<T> current{{}, Shape{}, {T(1)}};
  for (size_t i = 0; i < terms.size(); ++i) {
    std::set<int> later(equation.output.begin(), equation.output.end());
    for (size_t j = i + 1; j < terms.size(); ++j) {
      later.insert(terms[j].labels.begin(), terms[j].labels.end());
    }
    std::vector<int> kept;
    if (i + 1 == terms.size()) {
      kept = equation.output;
    } else {
      for (const auto* labels : {&current.labels, &terms[i].labels}) {
        for (const int label : *labels) {
          const bool known = std::find(kept.begin(), kept.end(), label) != kept.end();
          if (later.contains(label) && !known) kept.push_back(label);
        }
      }
    }
    auto contracted = Contract(current, terms[i], kept, extents);
    if (!contracted.ok()) return contracted.status().WithContext(Describe(node));
    current = std::move(*contracted);
  }
  return OneValue(TensorFrom(inputs[0].tensor().type(), current.shape, current.elements));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeEinsum(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("Einsum", type);
  if (type == DataType::kFloat) return MakeEagerKernel(Evaluate<float>);
  if (type == DataType::kDouble) return MakeEagerKernel(Evaluate<double>);
  return MakeEagerKernel(Evaluate<int64_t>);
}

}  // namespace onnxd
