// Slices, dimensions and layouts in function bodies.
#pragma once

#include "runtime/ops/function_body.h"

namespace onnxd {

inline Attributes AxisOf(int64_t axis) { return MakeAttributes({{"axis", axis}}); }

inline FunctionBody::Operand Slice(FunctionBody& body, FunctionBody::Operand x,
                                   FunctionBody::Operand begin, FunctionBody::Operand end,
                                   int64_t axis) {
  return body.Call("Slice", {x, begin, end, body.Integers({axis})});
}

inline FunctionBody::Operand Unsqueeze(FunctionBody& body, FunctionBody::Operand x, int64_t axis) {
  return body.Call("Unsqueeze", {x, body.Integers({axis})});
}

inline FunctionBody::Operand Squeeze(FunctionBody& body, FunctionBody::Operand x, int64_t axis) {
  return body.Call("Squeeze", {x, body.Integers({axis})});
}

// One dimension, as a tensor of rank 1.
inline FunctionBody::Operand DimensionOf(FunctionBody& body, FunctionBody::Operand x,
                                         int64_t axis) {
  return body.Call("Shape", {x}, MakeAttributes({{"start", axis}, {"end", axis + 1}}));
}

// 0, 1, ... below `count`, which has rank 1.
inline FunctionBody::Operand Range(FunctionBody& body, FunctionBody::Operand count) {
  const FunctionBody::Operand zero = body.Number(0, DataType::kInt64);
  return body.Call("Range", {zero, Squeeze(body, count, 0), body.Number(1, DataType::kInt64)});
}

// [batch, spatial..., channels] to [batch, channels, spatial...], and back.
inline FunctionBody::Operand ChannelsFirst(FunctionBody& body, FunctionBody::Operand x, int rank) {
  std::vector<int64_t> perm = {0, rank - 1};
  for (int axis = 1; axis < rank - 1; ++axis) perm.push_back(axis);
  return body.Call("Transpose", {x}, MakeAttributes({{"perm", perm}}));
}

inline FunctionBody::Operand ChannelsLast(FunctionBody& body, FunctionBody::Operand x, int rank) {
  std::vector<int64_t> perm = {0};
  for (int axis = 2; axis < rank; ++axis) perm.push_back(axis);
  perm.push_back(1);
  return body.Call("Transpose", {x}, MakeAttributes({{"perm", perm}}));
}

// The attributes but for some.
inline Attributes Without(const Attributes& from, std::initializer_list<const char*> names) {
  Attributes attributes = from;
  for (const char* name : names) attributes.Erase(name);
  return attributes;
}

}  // namespace onnxd
