// The elementwise nodes around a computation, as functions of its kernel.
#pragma once

#include <string>
#include <vector>

#include "runtime/providers/fused/fused_shapes.h"
#include "runtime/providers/gpu/pointwise.h"

namespace onnxd {

// A function of the kernels' language, of the element at a place of an iteration's shape:
//
//   T NAME(operands..., outputs..., value, place, column)
//
// reads the graph's inputs at the place, writes its outputs there, and returns a value's element.
class PlaceFunction {
 public:
  struct Parts {
    ValueId given = kNoValue;     // what `value` is; none: it is not read
    ValueId result = kNoValue;    // what is returned; none: 0
    ValueId shape = kNoValue;     // whose shape is iterated over
    std::vector<size_t> nodes;    // positions in the graph, all elementwise
    std::vector<size_t> outputs;  // positions among the graph's outputs that are written
    // Of rows that the shape is of, where the kernel knows the column; 0: it does not.
    int64_t columns = 0;
  };

  // kUnimplemented as BroadcastOperands.
  static Result<PlaceFunction> Make(const Graph& graph, const FusedShapes& shapes, std::string name,
                                    Parts parts);

  // Text before the kernel, behind "#define INDEX" and PointwiseFunctions.
  const std::string& text() const { return text_; }
  // Of the kernel, each with a comma behind it.
  const std::string& parameters() const { return parameters_; }
  std::string Call(std::string_view value, std::string_view place,
                   std::string_view column = "0") const;
  // Adds what parameters names. `whole`: a call of the fused node.
  void Fill(const KernelContext& whole, LaunchArguments& arguments) const;

 private:
  BroadcastOperands operands_;
  std::vector<size_t> inputs_;   // of the whole, by operand
  std::vector<size_t> outputs_;  // of the whole
  std::string name_, text_, parameters_, names_;
};

}  // namespace onnxd
