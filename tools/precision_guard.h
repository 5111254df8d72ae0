// Which products of a model stay float, so that fewer bits elsewhere keep its outputs near.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/session/inference_session.h"

namespace onnxd {

struct PrecisionChoice {
  std::set<std::string> float_layers;  // values that products make
  size_t layers = 0;                   // products that were asked about
  double largest_error = 0;            // of the choice, as LargestError says it
  double all_narrow_error = 0;         // were all of them narrow
};

// The largest difference between two runs' outputs of floats, as a share of the largest magnitude
// that the output has in `wanted`; infinite where one is no finite number and the other is
// not the same, or types or shapes differ.
double LargestError(const std::vector<Value>& wanted, const std::vector<Value>& got);

// Makes a session in which these products are float, or at `precision` fp32 all.
using SessionMaker = std::function<Result<std::unique_ptr<InferenceSession>>(
    Precision precision, const std::set<std::string>& float_layers)>;

// All products of the narrow `precision` if the outputs for all samples stay within `tolerance` of
// float32's, else as many as a search by halves finds. Sessions are made and run some twice the
// number of offending products times the logarithm of their number. kFailedPrecondition where the
// outputs are not near with every product in float.
Result<PrecisionChoice> ChooseFloatLayers(const std::vector<std::string>& layers,
                                          const SessionMaker& make, Precision precision,
                                          const std::vector<std::vector<Value>>& samples,
                                          double tolerance);

// The products that could be narrow, by the values that they make, in the order of the graph.
Result<std::vector<std::string>> NarrowableLayers(const std::string& path,
                                                  const SessionOptions& options);

}  // namespace onnxd
