// ModelProto on the wire -> ParsedModel.
#pragma once

#include "runtime/base/status.h"
#include "runtime/format/parsed_model.h"
#include "runtime/format/tensor_reader.h"
#include "runtime/base/wire_reader.h"

namespace onnxd {

inline constexpr int kMaxSubgraphDepth = 32;

// Reads the whole source as one ModelProto. Unknown fields are skipped; training information,
// documentation and annotations are ignored. kInvalidArgument or kResourceExhausted otherwise.
Result<ParsedModel> ParseModel(WireReader& reader, ExternalData& external);

// TypeProto -> ValueType.
Result<ValueType> ParseType(WireReader& reader, uint64_t end, int depth = 0);

}  // namespace onnxd
