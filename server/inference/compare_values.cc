#include "server/inference/compare_values.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

Status CompareNumbers(const Tensor& got, const Tensor& wanted, double relative, double absolute) {
  ONNXD_ASSIGN_OR_RETURN(const Tensor got_numbers, Converted(got, DataType::kDouble));
  ONNXD_ASSIGN_OR_RETURN(const Tensor wanted_numbers, Converted(wanted, DataType::kDouble));
  int64_t worst = -1, wrong = 0;
  double largest = -1;
  for (int64_t i = 0; i < wanted.ElementCount(); ++i) {
    const double a = got_numbers.data<double>()[i], b = wanted_numbers.data<double>()[i];
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
                                worst, ": got ", got_numbers.data<double>()[worst], ", expected ",
                                wanted_numbers.data<double>()[worst]));
}

Status CompareTensors(const Tensor& got, const Tensor& wanted, double relative, double absolute) {
  if (got.type() != wanted.type() || !(got.shape() == wanted.shape())) {
    return InvalidArgument(StrCat("got ", Describe(got.type(), got.shape()), ", expected ",
                                  Describe(wanted.type(), wanted.shape())));
  }
  if (wanted.type() == DataType::kString) {
    const auto a = got.elements<std::string>(), b = wanted.elements<std::string>();
    for (size_t i = 0; i < b.size(); ++i) {
      if (a[i] != b[i]) {
        return InvalidArgument(StrCat("element ", i, " is '", a[i], "', expected '", b[i], "'"));
      }
    }
    return Status::Ok();
  }
  if (IsConvertible(wanted.type())) return CompareNumbers(got, wanted, relative, absolute);
  const auto* a = static_cast<const unsigned char*>(got.raw());
  const auto* b = static_cast<const unsigned char*>(wanted.raw());
  if (std::equal(a, a + got.bytes(), b)) return Status::Ok();
  return InvalidArgument(StrCat("bytes differ in ", DataTypeName(wanted.type()), " tensors"));
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
