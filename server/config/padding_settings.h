// PaddedDimension: requests whose inputs are of any length along it are made one of few lengths:
// the list `padding` of NAME/model.yaml.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

struct PaddedDimension {
  std::string dimension;       // as the model's inputs name it
  std::vector<int64_t> sizes;  // ascending; a request that is longer stays as it is
  // Of each input with that dimension: what is put behind its own elements.
  std::map<std::string, double> values;
  // One of these inputs: 1 at what is the request's own, `values` behind that, where a request does
  // not bring it itself. Empty: none.
  std::string mask;
  double tolerance = 0.001;  // padding must change no answer by more; see Tolerance
  bool operator==(const PaddedDimension&) const = default;
};

// kInvalidArgument says what is missing or wrong.
Status CheckPadding(const std::vector<PaddedDimension>& padding);

// Of equal dimensions equal.
std::string Describe(const std::vector<PaddedDimension>& padding);

}  // namespace onnxd
