// Shape arithmetic before the shapes are known: what small integer tensors hold while their graph
// is loaded, element by element, so that Shape -> Gather -> Concat -> Reshape keeps its symbols.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/graph/graph.h"

namespace onnxd {

// One element: a number, an expression of symbols ("batch*12") that equals every element written
// alike and is never negative, or unknown (neither).
struct ShapeValue {
  std::optional<int64_t> number;
  std::string symbol;

  bool operator==(const ShapeValue&) const = default;
  bool unknown() const { return !number && symbol.empty(); }
  static ShapeValue Of(const Dimension& dimension);
  Dimension ToDimension() const;  // of a number >= 0, a symbol, or unknown
};

// "4*batch" is 4 times "batch"; what is no product of a number and names is a name itself.
struct SymbolFactors {
  int64_t number = 1;
  std::vector<std::string> names;
};
SymbolFactors FactorsOf(const std::string& symbol);

// The elements of a scalar or a row.
struct ShapeValues {
  bool scalar = false;
  std::vector<ShapeValue> elements;
};

// What output 0 of `node` holds; nullopt when that cannot be said. `types` and `values` have one
// entry per input (null: nothing is known). Operators that exporters compute shapes with: Shape,
// Size, Gather, Slice, Concat, Unsqueeze, Squeeze, Reshape, Cast, Identity, Add, Sub, Mul, Div,
// Max, ReduceProd, Equal, Where, ConstantOfShape.
std::optional<ShapeValues> PropagateShapeValues(const Node& node, std::span<const ValueType> types,
                                                std::span<const ShapeValues* const> values);

}  // namespace onnxd
