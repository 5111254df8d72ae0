// A gRPC call and its answer as the API sees them: a path and serialized messages.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "server/access/grant.h"
#include "server/documents/load_report.h"
#include "server/inference/request_origin.h"

namespace onnxd {

struct GrpcCall {
  std::string path;     // "/package.Service/Method"
  std::string message;  // one serialized request
  RequestOrigin origin;
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::shared_ptr<const Grant> grant;  // what its key lets it do; set by the API
  std::string certificate;             // the common name of the one its client showed; may be empty
  std::string authorization, api_key;  // metadata of these names; may be empty
  bool stream_error_as_status = false;  // metadata triton_grpc_error: true
};

// A serialized response, or the status that ends the call. Called once, from any thread.
using GrpcRespond = std::function<void(Result<std::string>)>;
using GrpcHandler = std::function<void(GrpcCall&&, GrpcRespond)>;

// A streaming call's way to its client. Any thread.
class GrpcWriter {
 public:
  virtual ~GrpcWriter() = default;
  // Messages go out in the order of the calls.
  virtual void Send(std::string message) = 0;
  // One that is followed by others to the same message of the client: it does not answer it.
  virtual void SendPart(std::string message) = 0;
  // Ends the call after what was sent; what comes later is dropped.
  virtual void Finish(Status status) = 0;
};

// What the messages of one streaming call mean. One call at a time, none after it has gone.
class GrpcStreamHandler {
 public:
  virtual ~GrpcStreamHandler() = default;
  // Each is answered by one Send: while 64 wait for theirs, the client is not read from.
  virtual void OnMessage(std::string message) = 0;
  // The client has no more messages.
  virtual void OnEnd() = 0;
  // About once a second.
  virtual void OnTick() {}
};

// Whether calls of that path stream.
using GrpcIsStreaming = std::function<bool(std::string_view path)>;

// For a call that streams, whose `message` is empty, the handler, or why it is refused.
using GrpcOpenStream = std::function<Result<std::unique_ptr<GrpcStreamHandler>>(
    const GrpcCall&, std::shared_ptr<GrpcWriter>)>;

// What the trailers of a call that ends well tell load balancers, by its metadata
// endpoint-load-metrics-format, which may be empty.
using GrpcLoadReport = std::function<std::optional<LoadReportHeader>(std::string_view wanted)>;

// Of a call whose message has not been read: why it will not be.
using GrpcCheck = std::function<Status(const GrpcCall&)>;

struct GrpcHandlers {
  GrpcHandler unary;
  GrpcCheck check;  // of messages of more than 64 KB
  GrpcIsStreaming is_streaming;
  GrpcOpenStream open_stream;
  GrpcLoadReport load_report;
};

}  // namespace onnxd
