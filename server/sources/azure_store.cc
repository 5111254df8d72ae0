// Azure Blob Storage: https://learn.microsoft.com/rest/api/storageservices/list-blobs. The account:
// AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT (at AZURE_STORAGE_ENDPOINT, if that is
// not Azure's own). Credentials: AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, a federated token
// (AZURE_FEDERATED_TOKEN_FILE, AZURE_CLIENT_ID, AZURE_TENANT_ID), the machine's own. None: access
// without them.
#include <charconv>
#include <chrono>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"
#include "server/inference/base64.h"
#include "server/sources/object_store.h"
#include "server/sources/xml_records.h"

namespace onnxd {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::system_clock;

constexpr const char* kVersion = "2021-08-06";
constexpr auto kSoon = std::chrono::minutes(5);

struct Account {
  std::string name, key, sas, endpoint;
};

Account FindAccount() {
  Account account{FromEnvironment("AZURE_STORAGE_ACCOUNT"), FromEnvironment("AZURE_STORAGE_KEY"),
                  FromEnvironment("AZURE_STORAGE_SAS_TOKEN"),
                  FromEnvironment("AZURE_STORAGE_ENDPOINT")};
  for (const std::string& part :
       SplitList(FromEnvironment("AZURE_STORAGE_CONNECTION_STRING"), ';')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = part.substr(0, equals), value = part.substr(equals + 1);
    if (key == "AccountName") account.name = value;
    if (key == "AccountKey") account.key = value;
    if (key == "SharedAccessSignature") account.sas = value;
    if (key == "BlobEndpoint") account.endpoint = value;
  }
  while (account.sas.starts_with('?')) account.sas.erase(0, 1);
  while (account.endpoint.ends_with('/')) account.endpoint.pop_back();
  if (account.endpoint.empty()) {
    account.endpoint = StrCat("https://", account.name, ".blob.core.windows.net");
  }
  return account;
}

std::string HttpTime(Clock::time_point time) {
  const std::time_t seconds = Clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

class AzureStore final : public ObjectStore {
 public:
  AzureStore(const SourceUrl& url, const Fetcher& fetcher)
      : url_(url), fetcher_(fetcher), account_(FindAccount()) {}

  Result<std::vector<RemoteObject>> List() override {
    if (account_.name.empty()) {
      return InvalidArgument(StrCat(url_.shown,
                                    " needs AZURE_STORAGE_ACCOUNT or "
                                    "AZURE_STORAGE_CONNECTION_STRING"));
    }
    std::vector<RemoteObject> objects;
    std::string marker;
    do {
      FetchRequest request;
      request.url = StrCat(Address(), "?comp=list");
      if (!marker.empty()) request.url += StrCat("&marker=", EncodeUrl(marker, false));
      request.url += StrCat("&prefix=", EncodeUrl(url_.path, false), "&restype=container");
      ONNXD_ASSIGN_OR_RETURN(request, Authorized(std::move(request)));
      ONNXD_ASSIGN_OR_RETURN(const auto response, fetcher_.Fetch(request));
      if (response.status != 200) return StatusOf(response, url_.shown);
      ONNXD_ASSIGN_OR_RETURN(auto page, ReadXml(response.body, "Blob"));
      for (auto& record : page.records) {
        RemoteObject object;
        object.path = PathBelow(url_.path, record["Name"]);
        if (object.path.empty() || record["Name"].ends_with('/')) continue;
        object.url = StrCat(Address(), "/", EncodeUrl(record["Name"], true));
        object.revision = record["Etag"];
        const std::string& size = record["Content-Length"];
        std::from_chars(size.data(), size.data() + size.size(), object.bytes);
        if (const auto md5 = DecodeBase64(record["Content-MD5"]); md5 && md5->size() == 16) {
          object.checksum = {Checksum::Kind::kMd5, Hex(*md5)};
        }
        objects.push_back(std::move(object));
        if (objects.size() > kMostObjects) return ResourceExhausted("too many objects");
      }
      marker = page.others["NextMarker"];
    } while (!marker.empty());
    return objects;
  }

  Result<FetchRequest> Read(const RemoteObject& object, int64_t offset) override {
    FetchRequest request;
    request.url = object.url;
    if (offset > 0) request.headers["x-ms-range"] = StrCat("bytes=", offset, "-");
    return Authorized(std::move(request));
  }

 private:
  std::string Address() const { return StrCat(account_.endpoint, "/", url_.bucket); }

  Result<FetchRequest> Authorized(FetchRequest request) {
    request.headers["x-ms-version"] = kVersion;
    request.headers["x-ms-date"] = HttpTime(Clock::now());
    if (!account_.sas.empty()) {
      request.url += StrCat(request.url.find('?') == std::string::npos ? "?" : "&", account_.sas);
      return request;
    }
    if (!account_.key.empty()) return Signed(std::move(request));
    if (!looked_ || expires_ - kSoon < Clock::now()) {
      ONNXD_RETURN_IF_ERROR(FindToken());
      looked_ = true;
    }
    if (!token_.empty()) request.headers["Authorization"] = StrCat("Bearer ", token_);
    return request;
  }

  // https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key, of a GET. A
  // range is asked for in x-ms-range, which is signed like the others.
  Result<FetchRequest> Signed(FetchRequest request) const {
    const auto key = DecodeBase64(account_.key);
    if (!key) return InvalidArgument("AZURE_STORAGE_KEY is no base64");
    const size_t path_at = request.url.find('/', request.url.find("://") + 3);
    const size_t query_at = std::min(request.url.find('?'), request.url.size());
    std::string resource =
        StrCat("/", account_.name, request.url.substr(path_at, query_at - path_at));
    if (query_at < request.url.size()) {
      for (const std::string& part : SplitList(request.url.substr(query_at + 1), '&')) {
        const size_t equals = part.find('=');
        resource += StrCat("\n", part.substr(0, equals), ":", DecodeUrl(part.substr(equals + 1)));
      }
    }
    std::string headers;
    for (const auto& [name, value] : request.headers) {
      if (name.starts_with("x-ms-")) headers += StrCat(name, ":", value, "\n");
    }
    // Eleven standard headers, none of which a GET has.
    const std::string to_sign = StrCat("GET\n\n\n\n\n\n\n\n\n\n\n\n", headers, resource);
    request.headers["Authorization"] =
        StrCat("SharedKey ", account_.name, ":", EncodeBase64(HmacSha256(*key, to_sign)));
    return request;
  }

  Status FindToken() {
    const std::string file = FromEnvironment("AZURE_FEDERATED_TOKEN_FILE");
    const std::string client = FromEnvironment("AZURE_CLIENT_ID");
    if (file.empty()) return FromMachine(client);
    std::string authority = FromEnvironment("AZURE_AUTHORITY_HOST");
    if (authority.empty()) authority = "https://login.microsoftonline.com/";
    if (!authority.ends_with('/')) authority += '/';
    FetchRequest request;
    request.method = "POST";
    request.url = StrCat(authority, FromEnvironment("AZURE_TENANT_ID"), "/oauth2/v2.0/token");
    request.headers["Content-Type"] = "application/x-www-form-urlencoded";
    request.body =
        StrCat("grant_type=client_credentials&client_id=", EncodeUrl(client, false),
               "&scope=https%3A%2F%2Fstorage.azure.com%2F.default&client_assertion_type=",
               "urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer&client_assertion=",
               EncodeUrl(SmallFile(file), false));
    ONNXD_ASSIGN_OR_RETURN(const auto response, fetcher_.Fetch(request));
    if (response.status != 200) return StatusOf(response, "Azure's token");
    return TakeToken(response.body);
  }

  // Without a token where this machine is none of Azure's.
  Status FromMachine(const std::string& client) {
    std::string machine = FromEnvironment("AZURE_POD_IDENTITY_AUTHORITY_HOST");
    if (machine.empty()) machine = "http://169.254.169.254";
    FetchRequest request;
    request.url =
        StrCat(machine, "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=",
               "https%3A%2F%2Fstorage.azure.com%2F");
    if (!client.empty()) request.url += StrCat("&client_id=", EncodeUrl(client, false));
    request.headers["Metadata"] = "true";
    const std::string body = fetcher_.AskMachine(std::move(request));
    return body.empty() ? Status::Ok() : TakeToken(body);
  }

  Status TakeToken(const std::string& text) {
    const Json document = Json::parse(text, nullptr, false);
    if (!document.is_object() || !document.contains("access_token")) {
      return Unauthenticated("Azure gives no token");
    }
    token_ = document["access_token"].get<std::string>();
    const Json& lasts = document.contains("expires_in") ? document["expires_in"] : Json(3600);
    const int64_t seconds =
        lasts.is_string() ? std::atoll(lasts.get<std::string>().c_str()) : lasts.get<int64_t>();
    expires_ = Clock::now() + std::chrono::seconds(seconds);
    return Status::Ok();
  }

  const SourceUrl url_;
  const Fetcher& fetcher_;
  const Account account_;
  std::string token_;
  Clock::time_point expires_ = Clock::time_point::max();
  bool looked_ = false;
};

}  // namespace

std::unique_ptr<ObjectStore> NewAzureStore(const SourceUrl& url, const Fetcher& fetcher) {
  return std::make_unique<AzureStore>(url, fetcher);
}

}  // namespace onnxd
