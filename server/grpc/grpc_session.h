// One connection's gRPC calls: HTTP/2 streams <-> GrpcCall, with limits, deadlines and status.
// Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "server/grpc/grpc_server.h"
#include "server/grpc/http2_session.h"
#include "server/net/client_connections.h"

namespace onnxd {

class GrpcSession;

// What the sessions of a server share.
struct GrpcServer::Shared {
  ServerOptions::Limits limits;
  MessageBudget budget;
  ServerMetrics* metrics;
  GrpcHandlers handlers;
  std::atomic<int64_t> busy{0};
  std::mutex mutex;
  const TrustedProxies* proxies;
  Tracer* tracer;
  std::unordered_set<GrpcSession*> sessions;  // guarded by mutex
  ClientConnections clients;                  // guarded by mutex
};

class GrpcSession : public Http2Session {
 public:
  GrpcSession(std::unique_ptr<Connection> socket, std::shared_ptr<GrpcServer::Shared> shared);
  ~GrpcSession() override;

 private:
  class Writer;
  struct Way;
  struct Stream;
  struct Outgoing;

  void OnOpen(int32_t id) override;
  bool OnHeader(int32_t id, std::string_view name, std::string_view value) override;
  void OnData(int32_t id, std::string_view data) override;
  void OnFrame(int32_t id, Part part, bool ends) override;
  void OnEndSent(int32_t id) override;
  void OnStreamClose(int32_t id, bool was_reset) override;
  bool HasStreams() const override;
  void OnGoAway() override;
  void OnTick(Clock::time_point now) override;
  void OnClose() override;

  Stream* Find(int32_t id);
  std::shared_ptr<GrpcSession> Self();
  // Bytes of a message count against the server's budget until the stream is forgotten.
  bool Admit(Stream& stream, int64_t bytes);
  void Forget(Stream& stream);
  void MarkDispatched(Stream& stream);

  // Unary calls.
  void Identify(Stream& stream);
  Status CheckMore(Stream& stream, size_t bytes);
  GrpcCall CallOf(const Stream& stream) const;
  void Refuse(int32_t id, Stream& stream);
  void RefuseContentType(int32_t id, Stream& stream);
  void Dispatch(int32_t id, Stream& stream);
  void Answer(int32_t id, const std::atomic<bool>& cancelled, Result<std::string> answer);

  // Answers.
  void Queue(int32_t id, Stream& stream, std::string message);
  static ssize_t ReadAnswer(nghttp2_session*, int32_t id, uint8_t* out, size_t size,
                            uint32_t* flags, nghttp2_data_source* source, void*);
  void SubmitTrailers(int32_t id, const Stream& stream);
  void SubmitTrailersOnly(int32_t id, const Status& status);

  // Streaming calls.
  void OpenStream(int32_t id, Stream& stream);
  void OnStreamData(int32_t id, Stream& stream, std::string_view data);
  void OnStreamEnd(int32_t id, Stream& stream);
  void ReadMessages(int32_t id, Stream& stream);
  void AllowMore(int32_t id, Stream& stream);
  void SendOn(int32_t id, Stream& stream, std::string message);
  void FinishStream(int32_t id, Stream& stream, const Status& status);
  void EndIdleStream(int32_t id, Stream& stream);
  void CheckStream(int32_t id, Stream& stream, Clock::time_point now);

  const std::shared_ptr<GrpcServer::Shared> shared_;
  const std::string certificate_;  // the common name of the one its client showed
  std::map<int32_t, Stream> streams_;
};

}  // namespace onnxd
