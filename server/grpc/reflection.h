// Server reflection, from the descriptors that the messages bring along.
// Source: https://github.com/grpc/grpc/blob/master/doc/server-reflection.md
#pragma once

#include <memory>

#include "server/grpc/grpc_message.h"

namespace onnxd {

// Of grpc.reflection.v1 and v1alpha, whose messages are the same.
std::unique_ptr<GrpcStreamHandler> OpenReflection(std::shared_ptr<GrpcWriter> writer);

}  // namespace onnxd
