// Random inputs of a model, of shapes and ranges that a command line gives.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "runtime/session/inference_session.h"

namespace onnxd {

struct NumberRange {
  double low, high;
};

// "name=1x3x224x224". kInvalidArgument.
Result<std::map<std::string, Shape>> ParseShapes(const std::vector<std::string>& texts);
// "name=lo:hi". kInvalidArgument.
Result<std::map<std::string, NumberRange>> ParseRanges(const std::vector<std::string>& texts);

// Free dimensions are 1 where no shape is given; numbers from -1 to 1, integers 0 and 1, where no
// range is. kUnimplemented where the input is no tensor of numbers.
Result<Value> RandomInput(const TensorSignature& signature,
                          const std::map<std::string, Shape>& shapes,
                          const std::map<std::string, NumberRange>& ranges, std::mt19937& random);

}  // namespace onnxd
