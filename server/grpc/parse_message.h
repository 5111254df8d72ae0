// Serialized protobuf messages of clients.
#pragma once

#include <string>

#include "runtime/base/status.h"

namespace onnxd {

template <typename Message>
Status ParseMessage(const std::string& bytes, Message& message) {
  if (message.ParseFromString(bytes)) return Status::Ok();
  return InvalidArgument("the request is no valid protobuf message");
}

template <typename Message>
Result<Message> ParseMessage(const std::string& bytes) {
  Message message;
  ONNXD_RETURN_IF_ERROR(ParseMessage(bytes, message));
  return message;
}

}  // namespace onnxd
