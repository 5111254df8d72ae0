#include "server/net/entrance.h"

#include <array>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/dispatch.hpp>
#include <chrono>

namespace onnxd {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr auto kHandshakeTime = std::chrono::seconds(5);
constexpr auto kFirstBytesTime = std::chrono::seconds(10);
constexpr int64_t kMostHandshakes = 256;
constexpr int64_t kMostSilent = 1024;
// Of the preface of HTTP/2 (RFC 9113, section 3.4): no method of HTTP/1 begins like this.
constexpr std::string_view kHttp2Begin = "PRI";

}  // namespace

struct Entrance::Shared {
  Serve serve_http1, serve_http2;
  std::shared_ptr<const TlsContext> tls;
  ServerMetrics* metrics;
  std::atomic<int64_t> handshakes{0};
  std::atomic<int64_t> silent{0};  // connections whose first bytes are awaited

  Speaks speaks() const {
    if (serve_http1 == nullptr) return Speaks::kHttp2;
    return serve_http2 == nullptr ? Speaks::kHttp1 : Speaks::kEither;
  }
};

namespace {

// A connection of which it is not known yet who serves it.
class Arrival : public std::enable_shared_from_this<Arrival> {
 public:
  Arrival(std::unique_ptr<Connection> connection, std::shared_ptr<Entrance::Shared> shared)
      : connection_(std::move(connection)),
        timer_(connection_->get_executor()),
        shared_(std::move(shared)) {
    if (connection_->is_tls()) ++shared_->handshakes;
  }
  ~Arrival() {
    EndHandshake();
    if (awaits_bytes_) --shared_->silent;
  }

  void Start() {
    asio::dispatch(connection_->get_executor(), [self = shared_from_this()] {
      if (!self->connection_->is_tls()) return self->Look();
      self->CloseAfter(kHandshakeTime);
      self->connection_->Handshake([self](error_code error) {
        self->EndHandshake();
        if (!error) return self->Look();
        self->timer_.cancel();  // which keeps it all
        self->shared_->metrics->CountTlsFailure();
      });
    });
  }

 private:
  void EndHandshake() {
    if (connection_ == nullptr || !connection_->is_tls() || std::exchange(shaken_, true)) return;
    --shared_->handshakes;
  }

  void CloseAfter(Clock::duration time) {
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (!error && self->connection_ != nullptr) self->connection_->Close();
    });
  }

  void Look() {
    switch (shared_->speaks()) {
      case Speaks::kHttp1:
        return Hand(shared_->serve_http1);
      case Speaks::kHttp2:
        return Hand(shared_->serve_http2);
      case Speaks::kEither:
        break;
    }
    const std::string chosen = connection_->protocol();
    if (!chosen.empty()) return Hand(chosen == "h2" ? shared_->serve_http2 : shared_->serve_http1);
    awaits_bytes_ = true;
    if (++shared_->silent > kMostSilent) return;  // this one is closed
    CloseAfter(kFirstBytesTime);
    ReadFirst();
  }

  void ReadFirst() {
    connection_->async_read_some(asio::buffer(bytes_),
                                 [self = shared_from_this()](error_code error, size_t count) {
                                   if (error) return void(self->timer_.cancel());
                                   self->first_.append(self->bytes_.data(), count);
                                   self->Decide();
                                 });
  }

  void Decide() {
    const std::string_view begin = std::string_view(first_).substr(0, kHttp2Begin.size());
    const bool http2 = kHttp2Begin.starts_with(begin);
    if (http2 && begin.size() < kHttp2Begin.size()) return ReadFirst();
    connection_->PutBack(std::move(first_));
    Hand(http2 ? shared_->serve_http2 : shared_->serve_http1);
  }

  void Hand(const Entrance::Serve& serve) {
    timer_.cancel();
    serve(std::move(connection_));
  }

  std::unique_ptr<Connection> connection_;
  asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, Connection::executor_type> timer_;
  const std::shared_ptr<Entrance::Shared> shared_;
  std::array<char, 64> bytes_;
  std::string first_;
  bool shaken_ = false, awaits_bytes_ = false;
};

}  // namespace

Entrance::Entrance(Serve serve_http1, Serve serve_http2, std::shared_ptr<const TlsContext> tls,
                   ServerMetrics& metrics)
    : shared_(std::make_shared<Shared>()) {
  shared_->serve_http1 = std::move(serve_http1);
  shared_->serve_http2 = std::move(serve_http2);
  shared_->tls = std::move(tls);
  shared_->metrics = &metrics;
}

void Entrance::Take(Connection::Socket socket, IoThreads::Seat seat) const {
  const Speaks speaks = shared_->speaks();
  auto connection = std::make_unique<Connection>(
      std::move(socket), std::move(seat), shared_->tls ? shared_->tls->context() : nullptr, speaks);
  if (connection->is_tls() && shared_->handshakes >= kMostHandshakes) {
    return shared_->metrics->CountTlsFailure();
  }
  if (!connection->is_tls() && speaks != Speaks::kEither) {
    return (speaks == Speaks::kHttp1 ? shared_->serve_http1
                                     : shared_->serve_http2)(std::move(connection));
  }
  std::make_shared<Arrival>(std::move(connection), shared_)->Start();
}

}  // namespace onnxd
