// PaddingPlan: how requests are made one of few lengths, and their answers what they would have
// been.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/config/padding_settings.h"
#include "server/models/bound_shape.h"

namespace onnxd {

struct PaddingPlan {
  struct Axis {
    size_t index;  // of the model's inputs or outputs
    int axis;
    double value = 0;  // behind an input's own elements
  };
  struct Dimension {
    std::string name;
    std::vector<int64_t> sizes;
    std::vector<Axis> inputs, outputs;
    double tolerance;
  };
  std::vector<Dimension> dimensions;
  std::vector<size_t> masks;  // inputs that a request need not bring
  bool Makes(size_t input) const;
};

// kInvalidArgument when no input has the dimension, one that has it is given no value or has no
// numbers, or a value is of an input without it.
Result<std::shared_ptr<const PaddingPlan>> MakePaddingPlan(
    const std::vector<PaddedDimension>& settings, const std::vector<TensorSignature>& inputs,
    const std::vector<TensorSignature>& outputs);

// Ones in place of the masks that are absent, as large as the other inputs say.
Status AddMasks(const PaddingPlan& plan, const std::vector<TensorSignature>& signature,
                std::vector<Value>& inputs);

// Pads the inputs. Returns the length of each dimension before, and how many elements were added.
struct Padded {
  std::vector<int64_t> lengths;  // 0: it stayed as it was
  int64_t elements = 0;
};
Result<Padded> Pad(const PaddingPlan& plan, std::vector<Value>& inputs);
// Takes from the outputs what stands behind these lengths.
Status Crop(const PaddingPlan& plan, const Padded& padded, std::vector<Value>& outputs);

// Runs the session on made-up rows with and without padding. kFailedPrecondition names the output
// that differs, or says why it could not run.
Status CheckPadding(const PaddingPlan& plan, const InferenceSession& session,
                    const std::atomic<bool>* stopping);

}  // namespace onnxd
