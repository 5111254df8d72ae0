#include "server/grpc/grpc_server.h"

#include <utility>

#include "server/grpc/grpc_session.h"

namespace onnxd {

GrpcServer::GrpcServer(const ServerOptions::Limits& limits, const TrustedProxies& proxies,
                       Tracer& tracer, MessageBudget budget, ServerMetrics& metrics,
                       GrpcHandlers handlers)
    : shared_(std::make_shared<Shared>()) {
  shared_->limits = limits;
  shared_->proxies = &proxies;
  shared_->tracer = &tracer;
  shared_->budget = std::move(budget);
  shared_->metrics = &metrics;
  shared_->handlers = std::move(handlers);
}

GrpcServer::~GrpcServer() = default;

void GrpcServer::Serve(std::unique_ptr<Connection> socket) {
  auto session = std::make_shared<GrpcSession>(std::move(socket), shared_);
  {
    std::lock_guard lock(shared_->mutex);
    if (static_cast<int64_t>(shared_->sessions.size()) >= shared_->limits.connections) return;
    if (shared_->clients.HasMost(session->client(), shared_->limits, *shared_->proxies)) return;
    shared_->sessions.insert(session.get());
    shared_->clients.Enter(session->client());
  }
  session->Start();
}

std::vector<std::shared_ptr<Http2Session>> GrpcServer::Sessions() const {
  std::vector<std::shared_ptr<Http2Session>> sessions;
  std::lock_guard lock(shared_->mutex);
  for (GrpcSession* session : shared_->sessions) {
    if (auto held = session->weak_from_this().lock()) sessions.push_back(std::move(held));
  }
  return sessions;
}

void GrpcServer::AnnounceDrain() {
  for (const auto& session : Sessions()) session->Announce();
}

void GrpcServer::BeginDrain() {
  for (const auto& session : Sessions()) session->SendGoAway();
}

int64_t GrpcServer::connections() const {
  std::lock_guard lock(shared_->mutex);
  return static_cast<int64_t>(shared_->sessions.size());
}

int64_t GrpcServer::busy() const { return shared_->busy.load(std::memory_order_acquire); }

}  // namespace onnxd
