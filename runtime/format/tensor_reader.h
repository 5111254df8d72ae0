// TensorProto -> Initializer, in every storage form that ONNX has.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/base/wire_reader.h"
#include "runtime/graph/initializer.h"

namespace onnxd {

// Where external data may live: beneath the model's own folder; nullopt-like empty `directory`
// with `allowed` false refuses external data (models given as bytes).
struct ExternalData {
  bool allowed = false;
  std::string directory;
  // Opened files by location, so that a file with a thousand tensors is opened once.
  std::map<std::string, std::shared_ptr<const ByteSource>> files;
};

// Reads the TensorProto that spans [position, end) and its name. Raw and external elements stay
// references into their source; typed fields are converted and kept in memory. kInvalidArgument
// names the tensor when dimensions, type and byte counts disagree.
Result<std::pair<std::string, Initializer>> ReadTensor(WireReader& reader, uint64_t end,
                                                       ExternalData& external);

// SparseTensorProto -> the dense tensor.
Result<std::pair<std::string, Initializer>> ReadSparseTensor(WireReader& reader, uint64_t end,
                                                             ExternalData& external);

}  // namespace onnxd
