// Fourier transforms and windows.
#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

Status Window(InferenceContext& context) {
  const int64_t type = context.attributes().Int("output_datatype", 1);
  if (!IsDataType(type)) return context.Fail("attribute 'output_datatype' is no data type");
  context.SetElement(0, static_cast<DataType>(type));
  if (const auto size = context.known_ints(0)) {
    if (size->size() != 1 || (*size)[0] < 0) return context.Fail("size must be one length");
    context.SetShape(0, {(*size)[0]});
  }
  return Status::Ok();
}

// The signal's last axis is 1 (real) or 2 (complex); the result's is 2, or 1 for a real inverse.
Status Dft(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  const auto rank = static_cast<int>(shape->size());
  if (rank < 2) return context.Fail("the signal needs an axis and real or complex parts");
  int64_t axis = context.attributes().Int("axis", 1);
  if (context.version() >= 20) {
    axis = -2;
    if (context.HasInput(2)) {
      const auto known = context.known_ints(2);
      if (!known || known->size() != 1) return Status::Ok();
      axis = (*known)[0];
    }
  }
  ONNXD_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis, rank));
  const bool onesided = context.attributes().Int("onesided", 0) != 0;
  const bool inverse = context.attributes().Int("inverse", 0) != 0;
  SymbolicShape out = *shape;
  Dimension& length = out[static_cast<size_t>(at)];
  if (context.HasInput(1)) {
    const auto known = context.known_ints(1);
    length = known && known->size() == 1 ? Dimension((*known)[0]) : Dimension();
  }
  if (onesided && !inverse) {
    length = length.known() ? Dimension(length.value / 2 + 1) : Dimension();
  } else if (onesided && !context.HasInput(1)) {
    length = length.known() ? Dimension((length.value - 1) * 2) : Dimension();
  }
  out.back() = onesided && inverse ? 1 : 2;
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status Stft(InferenceContext& context) {
  const SymbolicShape* signal = context.shape(0);
  const auto step = context.known_ints(1);
  if (signal == nullptr || !step || step->size() != 1) return Status::Ok();
  if (signal->size() != 2 && signal->size() != 3) return context.Fail("the signal has a bad rank");
  Dimension frame;
  if (context.HasInput(3)) {
    const auto known = context.known_ints(3);
    if (!known || known->size() != 1) return Status::Ok();
    frame = (*known)[0];
  } else if (context.shape(2) != nullptr && context.shape(2)->size() == 1) {
    frame = (*context.shape(2))[0];
  }
  if (!frame.known() || !(*signal)[1].known()) return Status::Ok();
  if ((*step)[0] < 1 || frame.value < 1 || frame.value > (*signal)[1].value) {
    return context.Fail("frame_step or frame_length is out of range");
  }
  const bool onesided = context.attributes().Int("onesided", 1) != 0;
  context.SetShape(0, {(*signal)[0], ((*signal)[1].value - frame.value) / (*step)[0] + 1,
                       onesided ? frame.value / 2 + 1 : frame.value, 2});
  return Status::Ok();
}

Status MelWeightMatrix(InferenceContext& context) {
  const int64_t type = context.attributes().Int("output_datatype", 1);
  if (IsDataType(type)) context.SetElement(0, static_cast<DataType>(type));
  const auto bins = context.known_ints(0), length = context.known_ints(1);
  if (!bins || !length || bins->size() != 1 || length->size() != 1) return Status::Ok();
  if ((*bins)[0] < 0 || (*length)[0] < 0) return context.Fail("a size is negative");
  context.SetShape(0, {(*length)[0] / 2 + 1, (*bins)[0]});
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "BlackmanWindow", Window}, {"", "DFT", Dft},   {"", "HammingWindow", Window},
    {"", "HannWindow", Window},     {"", "STFT", Stft}, {"", "MelWeightMatrix", MelWeightMatrix},
};

}  // namespace

std::span<const InferenceRule> SignalRules() { return kRules; }

}  // namespace onnxd
