// Shape: the dimensions of a tensor that exists. SymbolicShape: what is known before it exists.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

inline constexpr int kMaxRank = 32;

// Dimensions, outermost first. Created unchecked; whoever takes one from outside the process calls
// Validate first.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  int64_t& operator[](int axis) { return dims_[static_cast<size_t>(axis)]; }
  const std::vector<int64_t>& dims() const { return dims_; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }
  void Append(int64_t dim) { dims_.push_back(dim); }
  bool operator==(const Shape&) const = default;

  // Product of the dimensions [begin, end); 1 when empty. Requires a validated shape.
  int64_t ElementCount() const { return ElementCount(0, rank()); }
  int64_t ElementCount(int begin, int end) const;

  // kInvalidArgument: a negative dimension, a rank above kMaxRank, or a product beyond 2^48.
  Status Validate() const;

  std::string ToString() const;  // "[1, 3, 224, 224]"

 private:
  std::vector<int64_t> dims_;
};

// A dimension: a value, else a symbol ("batch"), else unknown.
struct Dimension {
  int64_t value = -1;
  std::string symbol;

  Dimension() = default;
  Dimension(int64_t v) : value(v) {}  // NOLINT: dimensions are written as numbers
  static Dimension Symbol(std::string name) {
    Dimension dimension;
    dimension.symbol = std::move(name);
    return dimension;
  }
  // An extent that only runs know. InferGraph names it by its value and axis, so that what copies
  // it is known to be equal; nobody outside is shown such names.
  static Dimension Unnamed() { return Symbol("?"); }
  static Dimension Unnamed(std::string_view value, size_t axis);
  bool unnamed() const { return symbol.starts_with('?'); }
  bool known() const { return value >= 0; }
  bool operator==(const Dimension&) const = default;
};

using SymbolicShape = std::vector<Dimension>;

SymbolicShape ToSymbolic(const Shape& shape);
// The shape, when every dimension is known.
std::optional<Shape> ToConcrete(const SymbolicShape& shape);
std::string ToString(const SymbolicShape& shape);  // "[batch, 3, ?, 224]"

// `axis` with negative values counted from the end; kInvalidArgument outside [-rank, rank).
Result<int> NormalizeAxis(int64_t axis, int rank);

}  // namespace onnxd
