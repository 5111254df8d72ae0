#include "tools/random_inputs.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

template <typename T>
void FillRandom(Tensor& tensor, NumberRange range, std::mt19937& random) {
  for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
    const double unit = (static_cast<double>(random()) + 0.5) / 4294967296.0;  // never 0 or 1
    const double value = range.low + unit * (range.high - range.low);
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>) {
      tensor.mutable_data<T>()[i] = T(static_cast<float>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      tensor.mutable_data<T>()[i] = static_cast<T>(value);
    } else {
      tensor.mutable_data<T>()[i] = static_cast<T>(std::floor(value));
    }
  }
}

}  // namespace

Result<std::map<std::string, Shape>> ParseShapes(const std::vector<std::string>& texts) {
  std::map<std::string, Shape> shapes;
  for (const std::string& text : texts) {
    const size_t cut = text.rfind('=');
    if (cut == std::string::npos) return InvalidArgument(StrCat("--shape ", text, ": no '='"));
    std::vector<int64_t> dims;
    for (const std::string& part : SplitList(text.substr(cut + 1), 'x')) {
      int64_t dim = -1;
      const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), dim);
      if (error != std::errc() || stop != part.data() + part.size() || dim < 0) {
        return InvalidArgument(StrCat("--shape ", text, ": '", part, "' is no dimension"));
      }
      dims.push_back(dim);
    }
    shapes[text.substr(0, cut)] = Shape(dims);
  }
  return shapes;
}

Result<std::map<std::string, NumberRange>> ParseRanges(const std::vector<std::string>& texts) {
  std::map<std::string, NumberRange> ranges;
  for (const std::string& text : texts) {
    const size_t cut = text.rfind('='), colon = text.rfind(':');
    if (cut == std::string::npos || colon == std::string::npos || colon < cut) {
      return InvalidArgument(StrCat("--range ", text, ": expected name=lo:hi"));
    }
    const std::string low = text.substr(cut + 1, colon - cut - 1), high = text.substr(colon + 1);
    char *low_end, *high_end;
    const NumberRange range{std::strtod(low.c_str(), &low_end),
                            std::strtod(high.c_str(), &high_end)};
    if (low.empty() || high.empty() || *low_end != 0 || *high_end != 0 ||
        !(range.low < range.high)) {
      return InvalidArgument(StrCat("--range ", text, ": expected name=lo:hi with lo < hi"));
    }
    ranges[text.substr(0, cut)] = range;
  }
  return ranges;
}

Result<Value> RandomInput(const TensorSignature& signature,
                          const std::map<std::string, Shape>& shapes,
                          const std::map<std::string, NumberRange>& ranges, std::mt19937& random) {
  if (!signature.type.is_tensor()) {
    return Unimplemented(StrCat("input '", signature.name, "' is no tensor"));
  }
  Shape shape;
  if (const auto given = shapes.find(signature.name); given != shapes.end()) {
    shape = given->second;
  } else if (signature.type.shape) {
    for (const Dimension& dimension : *signature.type.shape) {
      shape.Append(dimension.known() ? dimension.value : 1);
    }
  }
  const DataType type = signature.type.element;
  const auto given = ranges.find(signature.name);
  const NumberRange range = given != ranges.end()   ? given->second
                            : IsFloatingPoint(type) ? NumberRange{-1, 1}
                                                    : NumberRange{0, 2};
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(type, shape));
  const auto fill = [&]<typename T>() { FillRandom<T>(tensor, range, random); };
  switch (type) {
    case DataType::kFloat:
      fill.operator()<float>();
      break;
    case DataType::kDouble:
      fill.operator()<double>();
      break;
    case DataType::kFloat16:
      fill.operator()<Float16>();
      break;
    case DataType::kBfloat16:
      fill.operator()<Bfloat16>();
      break;
    case DataType::kInt8:
      fill.operator()<int8_t>();
      break;
    case DataType::kUint8:
      fill.operator()<uint8_t>();
      break;
    case DataType::kInt16:
      fill.operator()<int16_t>();
      break;
    case DataType::kUint16:
      fill.operator()<uint16_t>();
      break;
    case DataType::kInt32:
      fill.operator()<int32_t>();
      break;
    case DataType::kUint32:
      fill.operator()<uint32_t>();
      break;
    case DataType::kInt64:
      fill.operator()<int64_t>();
      break;
    case DataType::kUint64:
      fill.operator()<uint64_t>();
      break;
    case DataType::kBool:
      fill.operator()<uint8_t>();
      break;
    default:
      return Unimplemented(StrCat("random values of type ", DataTypeName(type)));
  }
  return Value(std::move(tensor));
}

}  // namespace onnxd
