// Google Cloud Storage: https://cloud.google.com/storage/docs/json_api/v1/objects/list.
// Credentials: GOOGLE_APPLICATION_CREDENTIALS, those of `gcloud auth application-default login`,
// the machine's own. None: access without them. STORAGE_EMULATOR_HOST is a server without any,
// CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE one with them.
#include <chrono>
#include <nlohmann/json.hpp>

#include "runtime/base/str_cat.h"
#include "server/inference/base64.h"
#include "server/sources/object_store.h"

namespace onnxd {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::system_clock;

constexpr const char* kScope = "https://www.googleapis.com/auth/devstorage.read_only";
constexpr auto kSoon = std::chrono::minutes(5);

// RFC 4648, 5, without padding.
std::string UrlBase64(const std::string& bytes) {
  std::string text = EncodeBase64(bytes);
  for (char& c : text) c = c == '+' ? '-' : c == '/' ? '_' : c;
  while (text.ends_with('=')) text.pop_back();
  return text;
}

std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

class GoogleStore final : public ObjectStore {
 public:
  GoogleStore(const SourceUrl& url, const Fetcher& fetcher) : url_(url), fetcher_(fetcher) {
    emulator_ = FromEnvironment("STORAGE_EMULATOR_HOST");
    if (!emulator_.empty() && emulator_.find("://") == std::string::npos) {
      emulator_ = "http://" + emulator_;
    }
    while (emulator_.ends_with('/')) emulator_.pop_back();
    endpoint_ = FromEnvironment("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE");
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
    if (endpoint_.empty()) endpoint_ = "https://storage.googleapis.com";
    if (!emulator_.empty()) endpoint_ = emulator_;
  }

  Result<std::vector<RemoteObject>> List() override {
    std::vector<RemoteObject> objects;
    std::string token;
    do {
      FetchRequest request;
      request.url = StrCat(Address(), "?prefix=", EncodeUrl(url_.path, false));
      if (!token.empty()) request.url += StrCat("&pageToken=", EncodeUrl(token, false));
      ONNXD_ASSIGN_OR_RETURN(const Json page, FetchJson(std::move(request)));
      for (const Json& item : page.value("items", Json::array())) {
        const std::string name = TextOf(item, "name");
        RemoteObject object;
        object.path = PathBelow(url_.path, name);
        if (object.path.empty() || name.ends_with('/')) continue;
        object.revision = TextOf(item, "generation");
        object.url = StrCat(Address(), "/", EncodeUrl(name, false),
                            "?alt=media&generation=", EncodeUrl(object.revision, false));
        object.bytes = std::atoll(TextOf(item, "size").c_str());
        if (const auto md5 = DecodeBase64(TextOf(item, "md5Hash")); md5 && md5->size() == 16) {
          object.checksum = {Checksum::Kind::kMd5, Hex(*md5)};
        }
        objects.push_back(std::move(object));
        if (objects.size() > kMostObjects) return ResourceExhausted("too many objects");
      }
      token = TextOf(page, "nextPageToken");
    } while (!token.empty());
    return objects;
  }

  Result<FetchRequest> Read(const RemoteObject& object, int64_t offset) override {
    FetchRequest request;
    request.url = object.url;
    if (offset > 0) request.headers["Range"] = StrCat("bytes=", offset, "-");
    return Authorized(std::move(request));
  }

 private:
  std::string Address() const {
    return StrCat(endpoint_, "/storage/v1/b/", EncodeUrl(url_.bucket, false), "/o");
  }

  Result<Json> FetchJson(FetchRequest request) {
    ONNXD_ASSIGN_OR_RETURN(request, Authorized(std::move(request)));
    ONNXD_ASSIGN_OR_RETURN(const auto response, fetcher_.Fetch(request));
    if (response.status != 200) {
      const Status status = StatusOf(response, url_.shown);
      if (!token_.empty() || status.code() != StatusCode::kPermissionDenied) return status;
      return Unauthenticated(StrCat(url_.shown,
                                    " needs credentials: GOOGLE_APPLICATION_CREDENTIALS, "
                                    "gcloud's or the machine's"));
    }
    Json document = Json::parse(response.body, nullptr, false);
    if (!document.is_object()) return Unavailable(StrCat(url_.shown, ": the list is no JSON"));
    return document;
  }

  Result<FetchRequest> Authorized(FetchRequest request) {
    if (!emulator_.empty()) return request;
    if (!looked_ || expires_ - kSoon < Clock::now()) {
      ONNXD_RETURN_IF_ERROR(FindToken());
      looked_ = true;
    }
    if (!token_.empty()) request.headers["Authorization"] = StrCat("Bearer ", token_);
    return request;
  }

  Status FindToken() {
    const std::string named = FromEnvironment("GOOGLE_APPLICATION_CREDENTIALS");
    const std::string text = named.empty()
                                 ? HomeFile(".config/gcloud/application_default_credentials.json")
                                 : SmallFile(named);
    if (!named.empty() && text.empty()) {
      return Unauthenticated(StrCat("cannot read GOOGLE_APPLICATION_CREDENTIALS, ", named));
    }
    return text.empty() ? FromMachine() : FromFile(text);
  }

  Status FromFile(const std::string& text) {
    const Json file = Json::parse(text, nullptr, false);
    const std::string type = file.is_object() ? TextOf(file, "type") : "";
    FetchRequest request;
    request.method = "POST";
    request.headers["Content-Type"] = "application/x-www-form-urlencoded";
    request.url = file.is_object() ? TextOf(file, "token_uri") : "";
    if (request.url.empty()) request.url = "https://oauth2.googleapis.com/token";
    if (type == "authorized_user") {
      request.body =
          StrCat("grant_type=refresh_token&client_id=", EncodeUrl(TextOf(file, "client_id"), false),
                 "&client_secret=", EncodeUrl(TextOf(file, "client_secret"), false),
                 "&refresh_token=", EncodeUrl(TextOf(file, "refresh_token"), false));
    } else if (type == "service_account") {
      ONNXD_ASSIGN_OR_RETURN(const std::string claim, Claim(file, request.url));
      request.body = StrCat("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer",
                            "&assertion=", claim);
    } else {
      return Unauthenticated(
          "Google's credentials are neither of a service_account nor an authorized_user");
    }
    ONNXD_ASSIGN_OR_RETURN(const auto response, fetcher_.Fetch(request));
    if (response.status != 200) return StatusOf(response, "Google's token");
    return TakeToken(response.body);
  }

  // RFC 7523.
  static Result<std::string> Claim(const Json& file, const std::string& audience) {
    const auto now =
        std::chrono::duration_cast<std::chrono::seconds>(Clock::now().time_since_epoch()).count();
    const Json header = {{"alg", "RS256"}, {"typ", "JWT"}};
    const Json claim = {{"iss", TextOf(file, "client_email")},
                        {"scope", kScope},
                        {"aud", audience},
                        {"iat", now},
                        {"exp", now + 3600}};
    const std::string text = StrCat(UrlBase64(header.dump()), ".", UrlBase64(claim.dump()));
    ONNXD_ASSIGN_OR_RETURN(const std::string signature,
                           SignRsaSha256(TextOf(file, "private_key"), text));
    return StrCat(text, ".", UrlBase64(signature));
  }

  // Without a token where this machine is none of Google's.
  Status FromMachine() {
    const std::string host = FromEnvironment("GCE_METADATA_HOST");
    FetchRequest request;
    request.url = StrCat("http://", host.empty() ? "metadata.google.internal" : host,
                         "/computeMetadata/v1/instance/service-accounts/default/token");
    request.headers["Metadata-Flavor"] = "Google";
    const std::string body = fetcher_.AskMachine(std::move(request));
    return body.empty() ? Status::Ok() : TakeToken(body);
  }

  Status TakeToken(const std::string& text) {
    const Json document = Json::parse(text, nullptr, false);
    if (document.is_object()) token_ = TextOf(document, "access_token");
    if (token_.empty()) return Unauthenticated("Google gives no token");
    const auto seconds = document.find("expires_in");
    const int64_t lasts =
        seconds != document.end() && seconds->is_number() ? seconds->get<int64_t>() : 3600;
    expires_ = Clock::now() + std::chrono::seconds(lasts);
    return Status::Ok();
  }

  const SourceUrl url_;
  const Fetcher& fetcher_;
  std::string emulator_, endpoint_, token_;
  Clock::time_point expires_ = Clock::time_point::max();
  bool looked_ = false;
};

}  // namespace

std::unique_ptr<ObjectStore> NewGoogleStore(const SourceUrl& url, const Fetcher& fetcher) {
  return std::make_unique<GoogleStore>(url, fetcher);
}

}  // namespace onnxd
