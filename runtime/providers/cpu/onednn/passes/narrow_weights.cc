#include "runtime/providers/cpu/onednn/passes/narrow_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>

#include "runtime/graph/graph_match.h"
#include "runtime/providers/cpu/float_conversion.h"
#include "runtime/providers/cpu/onednn/passes/matmul_epilogue.h"

namespace onnxd {
namespace {

constexpr size_t kMatrix = 1;
constexpr DataType kNarrowTypes[] = {DataType::kFloat16, DataType::kBfloat16};

bool IsNarrow(DataType type) {
  return std::find(std::begin(kNarrowTypes), std::end(kNarrowTypes), type) !=
         std::end(kNarrowTypes);
}

// The elements in that type; nullopt where one of them is no number of it.
Result<std::optional<Tensor>> Exactly(const Tensor& floats, DataType type) {
  constexpr int64_t kChunk = 1024;
  std::array<float, kChunk> back;
  ONNXD_ASSIGN_OR_RETURN(Tensor narrow, Tensor::Create(type, floats.shape()));
  auto* to = static_cast<uint16_t*>(narrow.mutable_raw());
  const auto* from = floats.data<float>();
  for (int64_t at = 0; at < floats.ElementCount(); at += kChunk) {
    const int64_t count = std::min(kChunk, floats.ElementCount() - at);
    ConvertFloats(DataType::kFloat, from + at, type, to + at, count);
    ConvertFloats(type, to + at, DataType::kFloat, back.data(), count);
    if (std::memcmp(back.data(), from + at, static_cast<size_t>(count) * sizeof(float)) != 0) {
      return std::optional<Tensor>();
    }
  }
  return std::optional<Tensor>(std::move(narrow));
}

// The initializer in 16 bits: what it was converted from, or what its elements, where they are in
// memory anyway, are exactly.
Result<std::optional<Initializer>> NarrowForm(const Initializer& wide) {
  const Initializer from = wide.converted_from();
  if (from.defined()) {
    return IsNarrow(from.type()) ? std::optional<Initializer>(from) : std::nullopt;
  }
  if (!wide.in_memory()) return std::optional<Initializer>();
  ONNXD_ASSIGN_OR_RETURN(const Tensor elements, wide.Materialize());
  for (const DataType type : kNarrowTypes) {
    ONNXD_ASSIGN_OR_RETURN(std::optional<Tensor> narrow, Exactly(elements, type));
    if (narrow) return std::optional<Initializer>(Initializer(std::move(*narrow)));
  }
  return std::optional<Initializer>();
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "narrow_weights"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    std::map<ValueId, ValueId> narrow;  // kNoValue: there is none
    bool changed = false;
    for (Node& node : graph.nodes) {
      std::optional<Node> product = ProductAsFused(graph, node);
      if (!product) continue;
      const ValueId wide = product->inputs[kMatrix];
      if (!narrow.contains(wide)) {
        ONNXD_ASSIGN_OR_RETURN(narrow[wide], AddNarrow(graph, wide));
      }
      if (narrow[wide] == kNoValue) continue;
      product->op_type = "MatMulNarrowWeights";
      product->inputs[kMatrix] = narrow[wide];
      node = std::move(*product);
      changed = true;
    }
    return changed;
  }

 private:
  static Result<ValueId> AddNarrow(Graph& graph, ValueId wide) {
    ONNXD_ASSIGN_OR_RETURN(std::optional<Initializer> form,
                           NarrowForm(graph.initializers.at(wide)));
    if (!form) return kNoValue;
    const std::string name = graph.value(wide).name + "_narrow";
    return graph.AddInitializer(name, std::move(*form));
  }
};

}  // namespace

const GraphPass* NarrowWeights() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
