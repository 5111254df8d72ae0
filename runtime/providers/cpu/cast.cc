// Cast, CastLike and BitCast.
#include <charconv>
#include <cmath>
#include <cstring>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/float_conversion.h"
#include "runtime/providers/cpu/type_dispatch.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

constexpr int64_t kGrain = 1 << 16;  // elements for a thread

// Shortest text that reads back as the same number, as NumPy prints it: 0.1, 1.0, 1e+20, nan.
std::string NumberText(double value, DataType type) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[64];
  const double magnitude = std::fabs(value);
  const bool plain = value == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end =
      type == DataType::kDouble
          ? std::to_chars(text, text + sizeof(text), value, format).ptr
          : std::to_chars(text, text + sizeof(text), static_cast<float>(value), format).ptr;
  std::string result(text, end);
  if (plain && result.find('.') == std::string::npos) result += ".0";
  return result;
}

std::string ElementText(DataType type, const void* data, int64_t index) {
  switch (type) {
    case DataType::kBool:
      return static_cast<const bool*>(data)[index] ? "True" : "False";
    case DataType::kFloat:
      return NumberText(static_cast<const float*>(data)[index], type);
    case DataType::kDouble:
      return NumberText(static_cast<const double*>(data)[index], type);
    case DataType::kUint64:
      return std::to_string(static_cast<const uint64_t*>(data)[index]);
    default:
      break;
  }
  std::string text;
  DispatchNumber(type, [&]<typename T>() { text = StrCat(+static_cast<const T*>(data)[index]); });
  return text;
}

// Text that holds one number: decimal, scientific, "nan", "inf" with sign, any letter case.
Result<double> ParseNumber(const std::string& text) {
  const char* begin = text.c_str();
  char* end = nullptr;
  const double value = std::strtod(begin, &end);
  while (end != nullptr && (*end == ' ' || *end == '\t' || *end == '\n')) ++end;
  if (end == begin || *end != '\0') return InvalidArgument(StrCat("'", text, "' is no number"));
  return value;
}

Result<PreparedKernel> PrepareToText(DataType from, int64_t count, const Shape& shape) {
  PreparedKernel prepared;
  prepared.compute = [from, count, shape](const KernelContext& k) -> Status {
    ONNXD_ASSIGN_OR_RETURN(Tensor text, Tensor::Create(DataType::kString, shape));
    auto* elements = text.mutable_data<std::string>();
    if (from == DataType::kFloat16 || from == DataType::kBfloat16 || IsMinifloat(from)) {
      std::vector<float> values(static_cast<size_t>(count));
      ConvertElements(from, k.input<void>(0), DataType::kFloat, values.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        elements[i] = NumberText(values[static_cast<size_t>(i)], DataType::kFloat);
      }
    } else {
      for (int64_t i = 0; i < count; ++i) elements[i] = ElementText(from, k.input<void>(0), i);
    }
    k.output_value(0) = std::move(text);
    return Status::Ok();
  };
  return prepared;
}

Result<PreparedKernel> PrepareFromText(const PrepareContext& context, DataType to,
                                       const MinifloatOptions& options) {
  PreparedKernel prepared;
  const bool dense = context.outputs[0].shape != nullptr;
  const std::string name = Describe(context.node);
  prepared.compute = [=](const KernelContext& k) -> Status {
    const Tensor& text = k.input_value(0).tensor();
    const int64_t count = text.ElementCount();
    std::vector<double> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const auto value = ParseNumber(text.data<std::string>()[i]);
      if (!value.ok()) return value.status().WithContext(name);
      values[static_cast<size_t>(i)] = *value;
    }
    Tensor out;
    void* target = dense ? k.output<void>(0) : nullptr;
    if (!dense) {
      ONNXD_ASSIGN_OR_RETURN(out, Tensor::Create(to, text.shape()));
      target = out.mutable_raw();
    }
    ConvertElements(DataType::kDouble, values.data(), to, target, count, options);
    if (!dense) k.output_value(0) = std::move(out);
    return Status::Ok();
  };
  return prepared;
}

MinifloatOptions OptionsOf(const Node& node) {
  MinifloatOptions options;
  options.saturate = node.attributes.Int("saturate", 1) != 0;
  const std::string mode = node.attributes.String("round_mode", "up");
  if (mode == "down") options.rounding = Float8E8M0Rounding::kDown;
  if (mode == "nearest") options.rounding = Float8E8M0Rounding::kNearest;
  return options;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeCast(const KernelInfo& info) {
  const DataType from = info.InputType(0), to = info.OutputType(0);
  const auto castable = [](DataType type) {
    return IsConvertible(type) || type == DataType::kString;
  };
  if (from != to && (!castable(from) || !castable(to))) {
    return Unimplemented(
        StrCat("Cast from ", DataTypeName(from), " to ", DataTypeName(to), " is not supported"));
  }
  const MinifloatOptions options = OptionsOf(info.node);
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    PreparedKernel prepared;
    if (from == to && from != DataType::kString) {
      prepared.views = {{0, 0}};
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    if (from == to) {
      prepared.compute = [](const KernelContext& k) {
        k.output_value(0) = k.input_value(0);
        return Status::Ok();
      };
      return prepared;
    }
    if (from == DataType::kString) return PrepareFromText(context, to, options);
    const int64_t count = context.InputShape(0).ElementCount();
    if (to == DataType::kString) return PrepareToText(from, count, context.InputShape(0));
    const auto is_half = [](DataType type) {
      return type == DataType::kFloat16 || type == DataType::kBfloat16;
    };
    if ((from == DataType::kFloat && is_half(to)) || (is_half(from) && to == DataType::kFloat)) {
      prepared.compute = [=](const KernelContext& k) {
        const auto at = [](auto* data, DataType type, int64_t i) {
          return data + i * (DataTypeBits(type) / 8);
        };
        k.pool().ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
          ConvertFloats(from, at(k.input<std::byte>(0), from, begin), to,
                        at(k.output<std::byte>(0), to, begin), end - begin);
        });
        return Status::Ok();
      };
      return prepared;
    }
    prepared.compute = [=](const KernelContext& k) {
      ConvertElements(from, k.input<void>(0), to, k.output<void>(0), count, options);
      return Status::Ok();
    };
    return prepared;
  });
}

// BitCast-26: the bytes stay, the type changes; both types are equally wide.
Result<std::unique_ptr<Kernel>> MakeBitCast(const KernelInfo& info) {
  const DataType from = info.InputType(0), to = info.OutputType(0);
  if (DataTypeBits(from) != DataTypeBits(to) || DataTypeBits(from) == 0) {
    return InvalidArgument(
        StrCat("BitCast from ", DataTypeName(from), " to ", DataTypeName(to), ": widths differ"));
  }
  return MakeKernel([](const PrepareContext&) -> Result<PreparedKernel> {
    PreparedKernel prepared;
    prepared.views = {{0, 0}};
    prepared.compute = [](const KernelContext&) { return Status::Ok(); };
    return prepared;
  });
}

}  // namespace onnxd
