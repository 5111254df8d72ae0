#include "server/net/listener.h"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "runtime/base/exceptions.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr auto kAcceptBackoff = std::chrono::milliseconds(20);
constexpr int kBacklog = 1024;

// The inode of the socket that listens on `port`, from /proc/net/tcp and tcp6.
std::string ListeningInode(int port) {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      char local[129], state[9];
      unsigned long inode = 0;
      if (std::sscanf(line.c_str(), " %*s %128s %*s %8s %*s %*s %*s %*s %*s %lu", local, state,
                      &inode) != 3) {
        continue;
      }
      const std::string address(local);
      const size_t colon = address.rfind(':');
      if (std::string(state) == "0A" && colon != std::string::npos &&
          std::strtol(address.c_str() + colon + 1, nullptr, 16) == port) {
        return StrCat(inode);
      }
    }
  }
  return "";
}

}  // namespace

Listener::Listener(IoThreads& threads, ServerMetrics& metrics, OnConnection on_connection)
    : threads_(threads),
      acceptor_(threads.context()),
      backoff_(threads.context()),
      metrics_(metrics),
      on_connection_(std::move(on_connection)) {}

namespace {

// Binds and listens.
template <typename Acceptor>
void Open(Acceptor& acceptor, const asio::generic::stream_protocol& protocol,
          const asio::generic::stream_protocol::endpoint& endpoint,
          boost::system::error_code& error) {
  acceptor.open(protocol, error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  // Asio would wait for the next connection to arrive before it takes those that wait behind one
  // that was aborted.
  if (!error) acceptor.set_option(asio::socket_base::enable_connection_aborted(true), error);
  if (!error) acceptor.listen(kBacklog, error);
}

// Removes a socket that nobody listens at.
Status ClearUnixSocket(asio::io_context& context, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code missing;
  const auto type = fs::symlink_status(path, missing).type();
  if (type == fs::file_type::not_found) return Status::Ok();
  if (type != fs::file_type::socket) {
    return FailedPrecondition(StrCat("'", path, "' is there and is no socket"));
  }
  asio::local::stream_protocol::socket probe(context);
  boost::system::error_code refused;
  probe.connect(asio::local::stream_protocol::endpoint(path), refused);
  if (!refused) return FailedPrecondition(StrCat("somebody listens at '", path, "'"));
  fs::remove(path, missing);
  return Status::Ok();
}

}  // namespace

Result<std::shared_ptr<Listener>> Listener::Bind(IoThreads& threads, const std::string& address,
                                                 int port, ServerMetrics& metrics,
                                                 OnConnection on_connection) {
  boost::system::error_code error;
  const auto ip = asio::ip::make_address(address, error);
  if (error) return InvalidArgument(StrCat("'", address, "' is not an IP address"));
  std::shared_ptr<Listener> listener(new Listener(threads, metrics, std::move(on_connection)));
  const tcp::endpoint endpoint(ip, static_cast<unsigned short>(port));
  Open(listener->acceptor_, endpoint.protocol(), endpoint, error);
  if (error) {
    const std::string holder = PortHolder(port);
    return FailedPrecondition(StrCat("cannot listen on ", address, ":", port, ": ", error.message(),
                                     holder.empty() ? "" : StrCat("; held by ", holder)));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  getsockname(listener->acceptor_.native_handle(), reinterpret_cast<sockaddr*>(&bound), &size);
  listener->port_ =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  return listener;
}

Result<std::shared_ptr<Listener>> Listener::BindUnix(IoThreads& threads, const std::string& path,
                                                     ServerMetrics& metrics,
                                                     OnConnection on_connection) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return InvalidArgument(StrCat("'", path, "' is too long for a unix socket"));
  }
  ONNXD_RETURN_IF_ERROR(ClearUnixSocket(threads.context(), path));
  std::shared_ptr<Listener> listener(new Listener(threads, metrics, std::move(on_connection)));
  const asio::local::stream_protocol::endpoint endpoint(path);
  boost::system::error_code error;
  Open(listener->acceptor_, endpoint.protocol(), endpoint, error);
  if (!error) listener->unix_socket_ = path;
  if (error || chmod(path.c_str(), 0660) != 0) {
    return FailedPrecondition(StrCat("cannot listen at '", path, "': ", error.message()));
  }
  return listener;
}

Listener::~Listener() {
  if (!unix_socket_.empty()) unlink(unix_socket_.c_str());
}

void Listener::Start() {
  asio::post(acceptor_.get_executor(), [self = shared_from_this()] { self->Accept(); });
}

void Listener::Close() {
  asio::post(acceptor_.get_executor(), [self = shared_from_this()] {
    boost::system::error_code ignored;
    self->acceptor_.close(ignored);
    self->backoff_.cancel();
  });
}

void Listener::Revive() {
  if (!accepting_) Start();
}

void Listener::Accept() {
  if (!acceptor_.is_open() || accepting_) return;
  auto accepting = std::make_shared<Accepting>(*this);
  IoThreads::Place place = threads_.Take();
  acceptor_.async_accept(
      place.context,
      [self = shared_from_this(), seat = std::move(place.seat), accepting = std::move(accepting)](
          boost::system::error_code error, Connection::Socket socket) mutable {
        if (error == asio::error::operation_aborted || !self->acceptor_.is_open()) return;
        if (error == asio::error::connection_aborted || error.value() == EPROTO) {
          self->metrics_.CountAcceptError();
          accepting.reset();
          return self->Accept();
        }
        if (error) return self->AcceptLater(error.message(), std::move(accepting));
        boost::system::error_code ignored;
        socket.set_option(tcp::no_delay(true), ignored);  // not for unix sockets, which is no harm
        const Status served = CatchExceptions([&] {
          self->on_connection_(std::move(socket), std::move(seat));
          return Status::Ok();
        });
        if (!served.ok()) {
          return self->AcceptLater(std::string(served.message()), std::move(accepting));
        }
        accepting.reset();
        self->Accept();
      });
}

void Listener::AcceptLater(const std::string& reason, std::shared_ptr<Accepting> accepting) {
  metrics_.CountAcceptError();
  LogWarning(StrCat("accept failed: ", reason));
  backoff_.expires_after(kAcceptBackoff);
  backoff_.async_wait([self = shared_from_this(),
                       accepting = std::move(accepting)](boost::system::error_code) mutable {
    accepting.reset();
    self->Accept();
  });
}

std::string PortHolder(int port) {
  const std::string inode = ListeningInode(port);
  if (inode.empty()) return "";
  const std::string wanted = StrCat("socket:[", inode, "]");
  namespace fs = std::filesystem;
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const std::string pid = process.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code denied;
    for (auto entry = fs::directory_iterator(process.path() / "fd", denied);
         !denied && entry != fs::directory_iterator(); entry.increment(denied)) {
      std::error_code gone;
      if (fs::read_symlink(entry->path(), gone).string() != wanted) continue;
      std::ifstream name(process.path() / "comm");
      std::string command;
      std::getline(name, command);
      return StrCat("pid ", pid, " (", command, ")");
    }
  }
  return "";
}

}  // namespace onnxd
