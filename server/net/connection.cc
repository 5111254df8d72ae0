#include "server/net/connection.h"

#include <arpa/inet.h>
#include <openssl/x509.h>

namespace onnxd {
namespace {

std::string AddressOf(const Connection::Socket& socket) {
  boost::system::error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return "";
  const sockaddr* address = endpoint.data();
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_UNIX) return "unix";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
              sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof(text));
  }
  return text;
}

}  // namespace

Connection::Connection(Socket socket, IoThreads::Seat seat, const TlsContext::Context& tls,
                       Speaks speaks)
    : seat_(std::move(seat)),
      socket_(std::move(socket)),
      client_(AddressOf(socket_)),
      context_(tls) {
  if (context_ == nullptr) return;
  tls_.emplace(socket_, *context_);
  TlsContext::SetProtocols(tls_->native_handle(), speaks);
}

std::string Connection::protocol() const {
  if (!tls_) return "";
  const unsigned char* name = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(const_cast<Connection*>(this)->tls_->native_handle(), &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

std::string Connection::certificate_name() const {
  if (!tls_) return "";
  SSL* const ssl = const_cast<Connection*>(this)->tls_->native_handle();
  X509* const certificate = SSL_get1_peer_certificate(ssl);
  if (certificate == nullptr) return "";
  std::string name(256, '\0');
  const int size = X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName,
                                             name.data(), static_cast<int>(name.size()));
  X509_free(certificate);
  name.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return name;
}

void Connection::Cancel() {
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

void Connection::ShutdownSend() {
  boost::system::error_code ignored;
  socket_.shutdown(boost::asio::socket_base::shutdown_send, ignored);
}

void Connection::Close() {
  boost::system::error_code ignored;
  socket_.shutdown(boost::asio::socket_base::shutdown_both, ignored);
  socket_.close(ignored);
}

}  // namespace onnxd
