// One file of any web server. Who may read it: ~/.netrc, or the file NETRC.
#include <charconv>
#include <sstream>

#include "runtime/base/str_cat.h"
#include "server/inference/base64.h"
#include "server/sources/object_store.h"

namespace onnxd {
namespace {

// "user:password" of a host; empty where the file has none. The format is ftp's: words.
std::string LoginOf(const std::string& host) {
  const std::string named = FromEnvironment("NETRC");
  std::istringstream words(named.empty() ? HomeFile(".netrc") : SmallFile(named));
  std::string word, value, login, password;
  bool meant = false;
  while (words >> word) {
    if (word == "machine" || word == "default") {
      if (meant) break;
      meant = word == "default" || (words >> value && value == host);
    } else if (words >> value && meant) {
      if (word == "login") login = value;
      if (word == "password") password = value;
    }
  }
  return meant ? StrCat(login, ":", password) : "";
}

class HttpStore final : public ObjectStore {
 public:
  HttpStore(const SourceUrl& url, const Fetcher& fetcher) : url_(url), fetcher_(fetcher) {}

  Result<std::vector<RemoteObject>> List() override {
    RemoteObject object;
    object.url = url_.path;
    const std::string path = url_.path.substr(0, url_.path.find('?'));
    object.path = DecodeUrl(path.substr(path.rfind('/') + 1));
    if (!url_.sha256.empty()) {
      object.checksum = {Checksum::Kind::kSha256, url_.sha256};
      object.revision = url_.sha256;
      return std::vector{std::move(object)};
    }
    ONNXD_ASSIGN_OR_RETURN(FetchRequest request, Read(object, 0));
    request.method = "HEAD";
    ONNXD_ASSIGN_OR_RETURN(const auto response, fetcher_.Fetch(request));
    if (response.status == 200) {
      object.revision = response.Header("etag");
      if (object.revision.empty()) object.revision = response.Header("last-modified");
      const std::string length = response.Header("content-length");
      std::from_chars(length.data(), length.data() + length.size(), object.bytes);
    } else if (response.status != 405 && response.status != 501) {  // there is no HEAD
      return StatusOf(response, object.path);
    }
    return std::vector{std::move(object)};
  }

  Result<FetchRequest> Read(const RemoteObject& object, int64_t offset) override {
    FetchRequest request;
    request.url = object.url;
    const size_t host = request.url.find("://") + 3;
    const std::string name = request.url.substr(host, request.url.find_first_of(":/", host) - host);
    const std::string login = LoginOf(name);
    if (offset > 0) request.headers["Range"] = StrCat("bytes=", offset, "-");
    if (!login.empty()) request.headers["Authorization"] = StrCat("Basic ", EncodeBase64(login));
    return request;
  }

 private:
  const SourceUrl url_;
  const Fetcher& fetcher_;
};

}  // namespace

std::unique_ptr<ObjectStore> NewHttpStore(const SourceUrl& url, const Fetcher& fetcher) {
  return std::make_unique<HttpStore>(url, fetcher);
}

}  // namespace onnxd
