#include "server/net/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace ssl = boost::asio::ssl;

Status Fault(const std::string& file, const boost::system::error_code& error) {
  ERR_clear_error();
  return InvalidArgument(StrCat(file, ": ", error.message()));
}

constexpr std::string_view kBoth("\x02h2\x08http/1.1"), kHttp2("\x02h2"), kHttp1("\x08http/1.1");

// Where a connection keeps which of those it offers.
int ProtocolsIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

// Prefers HTTP/2. Source: RFC 7301.
int SelectProtocol(SSL* connection, const unsigned char** out, unsigned char* out_size,
                   const unsigned char* offered, unsigned int offered_size, void*) {
  const auto* ours =
      static_cast<const std::string_view*>(SSL_get_ex_data(connection, ProtocolsIndex()));
  if (ours == nullptr) return SSL_TLSEXT_ERR_NOACK;
  unsigned char* selected = nullptr;
  const int result = SSL_select_next_proto(
      &selected, out_size, reinterpret_cast<const unsigned char*>(ours->data()),
      static_cast<unsigned int>(ours->size()), offered, offered_size);
  *out = selected;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

std::time_t ExpiryOf(SSL_CTX* context) {
  const X509* certificate = SSL_CTX_get0_certificate(context);
  std::tm time{};
  if (certificate == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &time) != 1) {
    return 0;
  }
  return timegm(&time);
}

}  // namespace

Result<TlsContext::Loaded> TlsContext::Read(const ServerOptions::Tls& files) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(
      native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_alpn_select_cb(native, SelectProtocol, nullptr);
  SSL_CTX_set_session_id_context(native, reinterpret_cast<const unsigned char*>("onnxd"), 5);
  boost::system::error_code error;
  context->use_certificate_chain_file(files.certificate, error);
  if (error) return Fault(files.certificate, error);
  context->use_private_key_file(files.key, ssl::context::pem, error);
  if (error) return Fault(files.key, error);  // or it is of another certificate
  if (files.client_certificates != "off") {
    context->load_verify_file(files.client_ca, error);
    if (error) return Fault(files.client_ca, error);
    const bool require = files.client_certificates == "require";
    SSL_CTX_set_verify(native, SSL_VERIFY_PEER | (require ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                       nullptr);
  }
  return Loaded{context, ExpiryOf(native)};
}

Result<std::shared_ptr<TlsContext>> TlsContext::Load(const ServerOptions::Tls& files) {
  std::shared_ptr<TlsContext> made(new TlsContext(files));
  made->fingerprint_ = made->Fingerprint();
  ONNXD_ASSIGN_OR_RETURN(made->loaded_, Read(files));
  return made;
}

void TlsContext::SetProtocols(SSL* connection, Speaks speaks) {
  const std::string_view* ours = speaks == Speaks::kHttp1   ? &kHttp1
                                 : speaks == Speaks::kHttp2 ? &kHttp2
                                                            : &kBoth;
  SSL_set_ex_data(connection, ProtocolsIndex(), const_cast<std::string_view*>(ours));
}

TlsContext::Context TlsContext::context() const {
  std::lock_guard lock(mutex_);
  return loaded_.context;
}

std::time_t TlsContext::expiry() const {
  std::lock_guard lock(mutex_);
  return loaded_.expiry;
}

Result<bool> TlsContext::Refresh() {
  std::string now = Fingerprint();
  {
    std::lock_guard lock(mutex_);
    if (now == fingerprint_) return false;
    fingerprint_ = std::move(now);
  }
  ONNXD_ASSIGN_OR_RETURN(Loaded loaded, Read(files_));
  std::lock_guard lock(mutex_);
  loaded_ = std::move(loaded);
  return true;
}

std::string TlsContext::Fingerprint() const {
  std::string all;
  for (const std::string& file : {files_.certificate, files_.key, files_.client_ca}) {
    struct stat info {};
    if (file.empty() || stat(file.c_str(), &info) != 0) continue;
    all += StrCat(info.st_dev, " ", info.st_ino, " ", info.st_size, " ", info.st_mtim.tv_sec, ".",
                  info.st_mtim.tv_nsec, "\n");
  }
  return all;
}

}  // namespace onnxd
