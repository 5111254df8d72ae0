#include "server/sources/digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include <array>
#include <fstream>
#include <memory>
#include <vector>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

Context NewContext() { return {EVP_MD_CTX_new(), &EVP_MD_CTX_free}; }

}  // namespace

std::string Hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char c : bytes) out += {kDigits[c >> 4], kDigits[c & 15]};
  return out;
}

std::string Sha256(std::string_view bytes) {
  std::string digest(32, '\0');
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr,
             EVP_sha256(), nullptr);
  return digest;
}

std::string HmacSha256(std::string_view key, std::string_view bytes) {
  std::string digest(32, '\0');
  unsigned int size = 32;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
       reinterpret_cast<unsigned char*>(digest.data()), &size);
  return digest;
}

Result<std::string> SignRsaSha256(const std::string& pem, std::string_view bytes) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> file(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(file.get(), nullptr, nullptr, nullptr), &EVP_PKEY_free);
  const Context context = NewContext();
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t size = 0;
  if (key == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), nullptr, &size, data, bytes.size()) != 1) {
    return InvalidArgument("the private key cannot be used");
  }
  std::string signature(size, '\0');
  if (EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, data,
                     bytes.size()) != 1) {
    return InvalidArgument("the private key cannot be used");
  }
  signature.resize(size);
  return signature;
}

Status CheckFile(const std::string& path, const Checksum& checksum) {
  if (checksum.kind == Checksum::Kind::kNone) return Status::Ok();
  const EVP_MD* kind = checksum.kind == Checksum::Kind::kMd5 ? EVP_md5() : EVP_sha256();
  const Context context = NewContext();
  if (EVP_DigestInit_ex(context.get(), kind, nullptr) != 1) {
    return Unavailable("this OpenSSL does not compute the checksum");
  }
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(1 << 20);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    EVP_DigestUpdate(context.get(), block.data(), static_cast<size_t>(file.gcount()));
  }
  if (!file.eof()) return Unavailable(StrCat("cannot read ", path));
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &size);
  const std::string found = Hex({reinterpret_cast<const char*>(digest.data()), size});
  if (found == checksum.hex) return Status::Ok();
  return Status(StatusCode::kDataLoss,
                StrCat("its checksum is ", found, ", expected ", checksum.hex));
}

}  // namespace onnxd
