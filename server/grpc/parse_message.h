// Serialized protobuf messages of clients.
#pragma once

#include <string>

#include "runtime/base/status.h"

namespace onnxd {

template <typename Message>
Result<Message> ParseMessage(const std::string& bytes) {
  Message message;
  if (!message.ParseFromString(bytes)) {
    return InvalidArgument("the request is no valid protobuf message");
  }
  return message;
}

}  // namespace onnxd
