#pragma once

#include <string_view>

#include "runtime/base/status.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// kUnknown for an absent value.
ValueType::Kind KindOf(const Value& value);

// Whether kernels made for `type` may be handed `value`: the same kind, tensors of the same element
// type; anything where nothing is known, or for an optional (Loop-16 hands in what it holds without
// the optional around it). Shapes and what sequences hold are not looked at. kInvalidArgument names
// the value, its type and what came instead. Graphs state types that their subgraphs need not keep:
// this stands wherever a value enters a graph or leaves a node whose result is known only when it
// ran.
Status CheckType(const Value& value, const ValueType& type, std::string_view name);

}  // namespace onnxd
