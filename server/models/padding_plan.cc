#include "server/models/padding_plan.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"
#include "server/inference/compare_values.h"
#include "server/models/random_rows.h"

namespace onnxd {
namespace {

constexpr auto kCheckLimit = std::chrono::seconds(30);

// Where the signature has the dimension.
std::vector<PaddingPlan::Axis> AxesOf(const std::vector<TensorSignature>& signature,
                                      const std::string& dimension) {
  std::vector<PaddingPlan::Axis> axes;
  for (size_t i = 0; i < signature.size(); ++i) {
    if (!signature[i].type.is_tensor() || !signature[i].type.shape) continue;
    const SymbolicShape& shape = *signature[i].type.shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis].known() || shape[axis].symbol != dimension) continue;
      axes.push_back({i, static_cast<int>(axis), 0});
    }
  }
  return axes;
}

Result<PaddingPlan::Dimension> PlanOf(const PaddedDimension& settings,
                                      const std::vector<TensorSignature>& inputs,
                                      const std::vector<TensorSignature>& outputs) {
  PaddingPlan::Dimension plan{settings.dimension, settings.sizes,
                              AxesOf(inputs, settings.dimension),
                              AxesOf(outputs, settings.dimension), settings.tolerance};
  const auto refuse = [&](auto... why) {
    return InvalidArgument(StrCat("padding: dimension '", settings.dimension, "': ", why...));
  };
  if (plan.inputs.empty()) return refuse("no input has it");
  size_t used = 0;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    PaddingPlan::Axis& axis = plan.inputs[i];
    const TensorSignature& input = inputs[axis.index];
    const auto value = settings.values.find(input.name);
    if (value == settings.values.end()) return refuse("input '", input.name, "' has no value");
    if (!IsConvertible(input.type.element))
      return refuse("input '", input.name, "' has no numbers");
    axis.value = value->second;
    used += i == 0 || plan.inputs[i - 1].index != axis.index;
  }
  if (used < settings.values.size()) return refuse("a value is of an input that does not have it");
  return plan;
}

// The tensor with `length` elements along the axis: cut off, or filled.
Result<Tensor> Resized(const Tensor& tensor, int axis, int64_t length, double value) {
  Shape shape = tensor.shape();
  const int64_t before = shape[axis];
  shape[axis] = length;
  ONNXD_RETURN_IF_ERROR(shape.Validate());
  ONNXD_ASSIGN_OR_RETURN(Tensor resized, length > before ? Filled(tensor.type(), shape, value)
                                                         : Tensor::Create(tensor.type(), shape));
  const int64_t rows = shape.ElementCount(0, axis);
  const int64_t inner = shape.ElementCount(axis + 1, shape.rank());
  const auto kept = static_cast<size_t>(std::min(before, length) * inner);
  const auto from_row = static_cast<size_t>(before * inner);
  const auto to_row = static_cast<size_t>(length * inner);
  if (kept == 0 || rows == 0) return resized;
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    if (tensor.type() == DataType::kString) {
      std::copy_n(tensor.data<std::string>() + row * from_row, kept,
                  resized.mutable_data<std::string>() + row * to_row);
      continue;
    }
    const size_t size = tensor.bytes() / static_cast<size_t>(tensor.ElementCount());
    std::memcpy(static_cast<std::byte*>(resized.mutable_raw()) + row * to_row * size,
                static_cast<const std::byte*>(tensor.raw()) + row * from_row * size, kept * size);
  }
  return resized;
}

// Of all inputs with the dimension; 0 where they differ, which the model itself refuses.
int64_t LengthOf(const PaddingPlan::Dimension& dimension, const std::vector<Value>& inputs) {
  int64_t length = -1;
  for (const auto& [index, axis, value] : dimension.inputs) {
    const int64_t own = inputs[index].tensor().shape()[axis];
    if (length >= 0 && own != length) return 0;
    length = own;
  }
  return std::max<int64_t>(length, 0);
}

Status CheckDimension(const PaddingPlan& plan, const PaddingPlan::Dimension& dimension,
                      const InferenceSession& session, const RunOptions& options) {
  // One less than a size: something is padded.
  const auto size =
      std::find_if(dimension.sizes.begin(), dimension.sizes.end(), [](int64_t s) { return s > 1; });
  if (size == dimension.sizes.end()) return Status::Ok();
  std::mt19937 random(11);
  const bool of_rows = dimension.inputs[0].axis == 0;
  ONNXD_ASSIGN_OR_RETURN(auto inputs,
                         RandomRows(session.inputs(), of_rows ? *size - 1 : 2, *size - 1, random));
  for (const size_t mask : plan.masks) {
    const Tensor& made_up = inputs[mask].tensor();
    ONNXD_ASSIGN_OR_RETURN(inputs[mask], Filled(made_up.type(), made_up.shape(), 1));
  }
  ONNXD_ASSIGN_OR_RETURN(const auto wanted, session.Run(inputs, options));
  ONNXD_ASSIGN_OR_RETURN(const Padded padded, Pad(plan, inputs));
  ONNXD_ASSIGN_OR_RETURN(auto got, session.Run(inputs, options));
  ONNXD_RETURN_IF_ERROR(Crop(plan, padded, got));
  for (size_t i = 0; i < got.size(); ++i) {
    const Status same = CompareValues(got[i], wanted[i], dimension.tolerance, dimension.tolerance);
    if (!same.ok()) {
      return same.WithContext(StrCat("output '", session.outputs()[i].name, "' changes"));
    }
  }
  return Status::Ok();
}

}  // namespace

bool PaddingPlan::Makes(size_t input) const {
  return std::find(masks.begin(), masks.end(), input) != masks.end();
}

Result<std::shared_ptr<const PaddingPlan>> MakePaddingPlan(
    const std::vector<PaddedDimension>& settings, const std::vector<TensorSignature>& inputs,
    const std::vector<TensorSignature>& outputs) {
  auto plan = std::make_shared<PaddingPlan>();
  for (const PaddedDimension& padded : settings) {
    ONNXD_ASSIGN_OR_RETURN(auto dimension, PlanOf(padded, inputs, outputs));
    plan->dimensions.push_back(std::move(dimension));
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].name == padded.mask && !plan->Makes(i)) plan->masks.push_back(i);
    }
  }
  return std::shared_ptr<const PaddingPlan>(std::move(plan));
}

Status AddMasks(const PaddingPlan& plan, const std::vector<TensorSignature>& signature,
                std::vector<Value>& inputs) {
  for (const size_t mask : plan.masks) {
    if (!inputs[mask].absent()) continue;
    const Shape shape = BoundShape(*signature[mask].type.shape, SymbolsOf(signature, inputs));
    ONNXD_ASSIGN_OR_RETURN(inputs[mask], Filled(signature[mask].type.element, shape, 1));
  }
  return Status::Ok();
}

Result<Padded> Pad(const PaddingPlan& plan, std::vector<Value>& inputs) {
  Padded padded;
  for (const PaddingPlan::Dimension& dimension : plan.dimensions) {
    const int64_t length = LengthOf(dimension, inputs);
    const auto size = std::lower_bound(dimension.sizes.begin(), dimension.sizes.end(), length);
    const bool stays = length == 0 || size == dimension.sizes.end() || *size == length;
    padded.lengths.push_back(stays ? 0 : length);
    if (stays) continue;
    for (const auto& [index, axis, value] : dimension.inputs) {
      const int64_t before = inputs[index].tensor().ElementCount();
      ONNXD_ASSIGN_OR_RETURN(inputs[index], Resized(inputs[index].tensor(), axis, *size, value));
      padded.elements += inputs[index].tensor().ElementCount() - before;
    }
  }
  return padded;
}

Status Crop(const PaddingPlan& plan, const Padded& padded, std::vector<Value>& outputs) {
  for (size_t i = 0; i < plan.dimensions.size(); ++i) {
    if (padded.lengths[i] == 0) continue;
    for (const auto& [index, axis, value] : plan.dimensions[i].outputs) {
      const Value& output = outputs[index];
      if (!output.is_tensor() || output.tensor().shape().rank() <= axis) continue;
      if (output.tensor().shape()[axis] <= padded.lengths[i]) continue;
      ONNXD_ASSIGN_OR_RETURN(outputs[index],
                             Resized(output.tensor(), axis, padded.lengths[i], value));
    }
  }
  return Status::Ok();
}

Status CheckPadding(const PaddingPlan& plan, const InferenceSession& session,
                    const std::atomic<bool>* stopping) {
  RunOptions options;
  options.deadline = std::chrono::steady_clock::now() + kCheckLimit;
  options.cancelled = stopping;
  for (const PaddingPlan::Dimension& dimension : plan.dimensions) {
    const Status same = CheckDimension(plan, dimension, session, options);
    if (same.ok()) continue;
    return FailedPrecondition(StrCat("padding of dimension '", dimension.name,
                                     "' cannot be shown to change nothing: ", same.message()));
  }
  return Status::Ok();
}

}  // namespace onnxd
