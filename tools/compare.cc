#include "tools/compare.h"

#include <algorithm>
#include <cmath>
#include <complex>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

template <typename T>
double AsDouble(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
Status CompareNumbers(const Tensor& got, const Tensor& wanted, double relative, double absolute) {
  int64_t worst = -1, wrong = 0;
  double largest = -1;
  for (int64_t i = 0; i < wanted.ElementCount(); ++i) {
    const double a = AsDouble(got.data<T>()[i]), b = AsDouble(wanted.data<T>()[i]);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double difference = std::abs(a - b);
    if (difference <= absolute + relative * std::abs(b)) continue;
    ++wrong;
    if (!(difference <= largest)) {
      largest = difference;
      worst = i;
    }
  }
  if (wrong == 0) return Status::Ok();
  return InvalidArgument(StrCat(wrong, " of ", wanted.ElementCount(), " elements differ, most at ",
                                worst, ": got ", AsDouble(got.data<T>()[worst]), ", expected ",
                                AsDouble(wanted.data<T>()[worst])));
}

Status CompareTensors(const Tensor& got, const Tensor& wanted, double relative, double absolute) {
  if (got.type() != wanted.type() || !(got.shape() == wanted.shape())) {
    return InvalidArgument(StrCat("got ", Describe(got.type(), got.shape()), ", expected ",
                                  Describe(wanted.type(), wanted.shape())));
  }
  const auto numbers = [&]<typename T>() {
    return CompareNumbers<T>(got, wanted, relative, absolute);
  };
  switch (wanted.type()) {
    case DataType::kFloat:
      return numbers.operator()<float>();
    case DataType::kDouble:
      return numbers.operator()<double>();
    case DataType::kFloat16:
      return numbers.operator()<Float16>();
    case DataType::kBfloat16:
      return numbers.operator()<Bfloat16>();
    case DataType::kInt8:
      return numbers.operator()<int8_t>();
    case DataType::kUint8:
      return numbers.operator()<uint8_t>();
    case DataType::kInt16:
      return numbers.operator()<int16_t>();
    case DataType::kUint16:
      return numbers.operator()<uint16_t>();
    case DataType::kInt32:
      return numbers.operator()<int32_t>();
    case DataType::kUint32:
      return numbers.operator()<uint32_t>();
    case DataType::kInt64:
      return numbers.operator()<int64_t>();
    case DataType::kUint64:
      return numbers.operator()<uint64_t>();
    case DataType::kString: {
      const auto a = got.elements<std::string>(), b = wanted.elements<std::string>();
      for (size_t i = 0; i < b.size(); ++i) {
        if (a[i] != b[i]) {
          return InvalidArgument(StrCat("element ", i, " is '", a[i], "', expected '", b[i], "'"));
        }
      }
      return Status::Ok();
    }
    default: {
      const auto* a = static_cast<const unsigned char*>(got.raw());
      const auto* b = static_cast<const unsigned char*>(wanted.raw());
      if (std::equal(a, a + got.bytes(), b)) return Status::Ok();
      return InvalidArgument(StrCat("bytes differ in ", DataTypeName(wanted.type()), " tensors"));
    }
  }
}

Status CompareLists(const std::vector<Value>& got, const std::vector<Value>& wanted,
                    double relative, double absolute) {
  if (got.size() != wanted.size()) {
    return InvalidArgument(StrCat("got ", got.size(), " elements, expected ", wanted.size()));
  }
  for (size_t i = 0; i < got.size(); ++i) {
    ONNXD_RETURN_IF_ERROR(
        CompareValues(got[i], wanted[i], relative, absolute).WithContext(StrCat("element ", i)));
  }
  return Status::Ok();
}

}  // namespace

Status CompareValues(const Value& got, const Value& wanted, double relative, double absolute) {
  if (wanted.is_tensor() && got.is_tensor()) {
    return CompareTensors(got.tensor(), wanted.tensor(), relative, absolute);
  }
  if (wanted.sequence() && got.sequence()) {
    return CompareLists(got.sequence()->elements, wanted.sequence()->elements, relative, absolute);
  }
  if (wanted.map() && got.map()) {
    if (got.map()->keys != wanted.map()->keys) return InvalidArgument("map keys differ");
    return CompareLists(got.map()->values, wanted.map()->values, relative, absolute);
  }
  if (wanted.optional() && got.optional()) {
    if (wanted.optional()->value.absent() && got.optional()->value.absent()) return Status::Ok();
    return CompareValues(got.optional()->value, wanted.optional()->value, relative, absolute);
  }
  return InvalidArgument("values of different kinds");
}

}  // namespace onnxd
