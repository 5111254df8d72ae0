// Operators whose output is the input's elements under another shape, and those that report shapes.
#include <algorithm>
#include <cstring>
#include <random>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

bool IsPlanned(const OperandInfo& operand) {
  return operand.kind == ValueType::Kind::kTensor && operand.type != DataType::kString &&
         operand.shape != nullptr;
}

}  // namespace

// Reshape, Flatten, Squeeze, Unsqueeze, Identity, inference Dropout: a view of input 0. Values that
// are not dense tensors are handed on.
Result<std::unique_ptr<Kernel>> MakeView(const KernelInfo& info) {
  if (info.node.op_type != "Identity" && info.InputType(0) == DataType::kString) {
    return DeclineType(info.node.op_type, DataType::kString);
  }
  return MakeKernel([](const PrepareContext& context) -> Result<PreparedKernel> {
    PreparedKernel prepared;
    if (!IsPlanned(context.inputs[0])) {
      prepared.compute = [](const KernelContext& k) {
        k.output_value(0) = k.input_value(0);
        return Status::Ok();
      };
      return prepared;
    }
    if (!IsPlanned(context.outputs[0])) {
      return FailedPrecondition("the output shape depends on values that are not known yet");
    }
    prepared.views = {{0, 0}};
    prepared.compute = [](const KernelContext&) { return Status::Ok(); };
    return prepared;
  });
}

namespace {

// Dropout with an input that switches training on. With a seed it draws what ONNX's reference
// draws: 53-bit numbers of a Mersenne twister seeded with the number itself.
Result<std::vector<Value>> SwitchableDropout(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Tensor* ratio_tensor = TensorAt(inputs, 1);
  const Tensor* training = TensorAt(inputs, 2);
  for (const Tensor* number : {ratio_tensor, training}) {
    if (number != nullptr && number->ElementCount() != 1) {
      return InvalidArgument(
          StrCat(Describe(node), ": ratio and training_mode must be one number"));
    }
  }
  const double ratio = ratio_tensor == nullptr ? 0.5 : ElementsAs<double>(*ratio_tensor).at(0);
  const bool drops = training != nullptr && *training->data<bool>() && ratio > 0;
  if (!(ratio >= 0 && ratio < 1)) {
    return InvalidArgument(StrCat(Describe(node), ": a ratio of ", ratio));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor mask, Tensor::Create(DataType::kBool, x.shape()));
  std::fill_n(mask.mutable_data<bool>(), x.ElementCount(), true);
  std::vector<double> values = ElementsAs<double>(x);
  if (drops) {
    std::mt19937 random(node.attributes.Has("seed")
                            ? static_cast<uint32_t>(node.attributes.Int("seed", 0))
                            : std::random_device()());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t high = static_cast<uint32_t>(random()) >> 5;
      const uint32_t low = static_cast<uint32_t>(random()) >> 6;
      const double drawn = (high * 67108864.0 + low) / 9007199254740992.0;
      const bool kept = drawn >= ratio;
      mask.mutable_data<bool>()[i] = kept;
      values[i] = kept ? values[i] / (1 - ratio) : 0;
    }
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor y, TensorFrom(x.type(), x.shape(), values));
  return std::vector<Value>{std::move(y), std::move(mask)};
}

}  // namespace

// Dropout at inference: a view, and a mask of true where one is asked for.
Result<std::unique_ptr<Kernel>> MakeDropout(const KernelInfo& info) {
  const DataType mask_type = info.OutputType(1);
  if (info.node.input(2) != kNoValue) return MakeEagerKernel(SwitchableDropout);
  return MakeKernel([mask_type](const PrepareContext& context) -> Result<PreparedKernel> {
    PreparedKernel prepared;
    prepared.views = {{0, 0}};
    const bool mask = context.HasOutput(1);
    const int64_t count = context.InputShape(0).ElementCount();
    prepared.compute = [=](const KernelContext& k) {
      if (!mask) return Status::Ok();
      if (mask_type == DataType::kBool) {
        std::fill_n(k.output<bool>(1), count, true);
        return Status::Ok();
      }
      // Before version 10 the mask has the type of the data.
      const Tensor ones =
          Tensor::Of<double>(Shape{count}, std::vector<double>(static_cast<size_t>(count), 1.0));
      ConvertElements(DataType::kDouble, ones.raw(), mask_type, k.output<void>(1), count);
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeShape(const KernelInfo& info) {
  const int64_t start = info.node.attributes.Int("start", 0);
  const int64_t end = info.node.attributes.Int("end", kMaxRank + 1);
  return MakeKernel([start, end](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.inputs[0].shape == nullptr) return FailedPrecondition("the shape is not known yet");
    const Shape& shape = context.InputShape(0);
    const int64_t rank = shape.rank();
    const auto clamp = [&](int64_t axis) {
      return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
    };
    std::vector<int64_t> dims;
    for (int64_t axis = clamp(start); axis < clamp(end); ++axis) {
      dims.push_back(shape[static_cast<int>(axis)]);
    }
    PreparedKernel prepared;
    prepared.compute = [dims](const KernelContext& k) {
      std::copy(dims.begin(), dims.end(), k.output<int64_t>(0));
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeSize(const KernelInfo&) {
  return MakeKernel([](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.inputs[0].shape == nullptr) return FailedPrecondition("the shape is not known yet");
    const int64_t count = context.InputShape(0).ElementCount();
    PreparedKernel prepared;
    prepared.compute = [count](const KernelContext& k) {
      *k.output<int64_t>(0) = count;
      return Status::Ok();
    };
    return prepared;
  });
}

namespace {

// The tensor that a Constant node states.
Result<Tensor> ConstantTensor(const Node& node) {
  const Attributes& attributes = node.attributes;
  for (const char* name : {"value", "sparse_value"}) {
    if (const Initializer* value = attributes.TensorValue(name)) return value->Materialize();
  }
  if (const float* number = attributes.Find<float>("value_float")) return Tensor::Scalar(*number);
  if (const int64_t* number = attributes.Find<int64_t>("value_int")) return Tensor::Scalar(*number);
  if (const std::string* text = attributes.Find<std::string>("value_string")) {
    return Tensor::Scalar(*text);
  }
  const auto list = [](const auto& values) {
    using T = typename std::decay_t<decltype(values)>::value_type;
    return Tensor::Of<T>(Shape{static_cast<int64_t>(values.size())}, values);
  };
  if (attributes.Has("value_floats")) return list(attributes.Floats("value_floats"));
  if (attributes.Has("value_ints")) return list(attributes.Ints("value_ints"));
  return list(attributes.Strings("value_strings"));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeConstant(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Tensor value, ConstantTensor(info.node));
  return MakeKernel([value](const PrepareContext&) -> Result<PreparedKernel> {
    PreparedKernel prepared;
    prepared.compute = [value](const KernelContext& k) {
      if (value.type() == DataType::kString) {
        k.output_value(0) = value;
      } else {
        std::memcpy(k.output<void>(0), value.raw(), value.bytes());
      }
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeConstantOfShape(const KernelInfo& info) {
  Tensor value = Tensor::Scalar(0.0f);
  if (const Initializer* given = info.node.attributes.TensorValue("value")) {
    ONNXD_ASSIGN_OR_RETURN(value, given->Materialize());
  }
  if (!IsMovable(value.type())) return DeclineType("ConstantOfShape", value.type());
  return MakeKernel([value](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[0].shape == nullptr) {
      return FailedPrecondition("the output shape depends on values that are not known yet");
    }
    const int64_t count = context.OutputShape(0).ElementCount();
    PreparedKernel prepared;
    prepared.compute = [value, count](const KernelContext& k) {
      DispatchWidth(value.type(), [&]<typename T>() {
        std::fill_n(k.output<T>(0), count, *static_cast<const T*>(value.raw()));
      });
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeRange(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("Range", type);
  return MakeKernel([type](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[0].shape == nullptr) {
      return FailedPrecondition("the output shape depends on values that are not known yet");
    }
    const int64_t count = context.OutputShape(0).ElementCount();
    PreparedKernel prepared;
    prepared.compute = [type, count](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        const T start = *k.input<T>(0), delta = *k.input<T>(2);
        for (int64_t i = 0; i < count; ++i) {
          k.output<T>(0)[i] = static_cast<T>(start + static_cast<T>(i) * delta);
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
