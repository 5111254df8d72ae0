// Amazon S3: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html
#include <algorithm>
#include <charconv>

#include "runtime/base/str_cat.h"
#include "server/sources/aws.h"
#include "server/sources/object_store.h"
#include "server/sources/xml_records.h"

namespace onnxd {
namespace {

constexpr auto kSoon = std::chrono::minutes(5);

class S3Store final : public ObjectStore {
 public:
  S3Store(const SourceUrl& url, const Fetcher& fetcher)
      : url_(url), fetcher_(fetcher), region_(AwsRegion()) {}

  Result<std::vector<RemoteObject>> List() override {
    std::vector<RemoteObject> objects;
    std::string token;
    do {
      ONNXD_ASSIGN_OR_RETURN(auto page, Page(token));
      for (auto& record : page.records) {
        const std::string key = DecodeUrl(record["Key"]);
        RemoteObject object;
        object.path = PathBelow(url_.path, key);
        if (object.path.empty() || key.ends_with('/')) continue;
        object.url = Address() + EncodeUrl(key, true);
        object.revision = record["ETag"];
        const std::string& size = record["Size"];
        std::from_chars(size.data(), size.data() + size.size(), object.bytes);
        object.checksum = ChecksumOf(object.revision);
        objects.push_back(std::move(object));
        if (objects.size() > kMostObjects) return ResourceExhausted("too many objects");
      }
      token = page.others["NextContinuationToken"];
    } while (!token.empty());
    return objects;
  }

  Result<FetchRequest> Read(const RemoteObject& object, int64_t offset) override {
    FetchRequest request;
    request.url = object.url;
    if (offset > 0) request.headers["Range"] = StrCat("bytes=", offset, "-");
    return Signed(std::move(request));
  }

 private:
  // An ETag is the MD5 of what was put in one part and not encrypted with a key of its own, which
  // then has 32 digits and no more.
  static Checksum ChecksumOf(std::string etag) {
    std::erase(etag, '"');
    const bool is_md5 =
        etag.size() == 32 && etag.find_first_not_of("0123456789abcdef") == std::string::npos;
    return is_md5 ? Checksum{Checksum::Kind::kMd5, etag} : Checksum{};
  }

  // Of the bucket, with a slash.
  std::string Address() const {
    std::string endpoint = FromEnvironment("AWS_ENDPOINT_URL_S3");
    if (endpoint.empty()) endpoint = FromEnvironment("AWS_ENDPOINT_URL");
    while (endpoint.ends_with('/')) endpoint.pop_back();
    if (!endpoint.empty()) return StrCat(endpoint, "/", url_.bucket, "/");
    const std::string service = StrCat("s3.", region_, ".amazonaws.com/");
    // Certificates are for one label before it.
    if (url_.bucket.find('.') != std::string::npos) {
      return StrCat("https://", service, url_.bucket, "/");
    }
    return StrCat("https://", url_.bucket, ".", service);
  }

  Result<XmlRecords> Page(const std::string& token) {
    for (int attempt = 0;; ++attempt) {
      FetchRequest request;
      request.url = Address() + "?";
      if (!token.empty())
        request.url += StrCat("continuation-token=", EncodeUrl(token, false), "&");
      request.url += StrCat("encoding-type=url&list-type=2&prefix=", EncodeUrl(url_.path, false));
      ONNXD_ASSIGN_OR_RETURN(request, Signed(std::move(request)));
      ONNXD_ASSIGN_OR_RETURN(const auto response, fetcher_.Fetch(request));
      const std::string region = response.Header("x-amz-bucket-region");
      if (response.status / 100 != 2 && attempt == 0 && !region.empty() && region != region_) {
        region_ = region;  // the bucket is elsewhere
        continue;
      }
      if (response.status != 200) {
        const Status status = StatusOf(response, url_.shown);
        if (credentials_.given() || status.code() != StatusCode::kPermissionDenied) return status;
        return Unauthenticated(StrCat(url_.shown,
                                      " needs credentials: AWS_ACCESS_KEY_ID, "
                                      "~/.aws/credentials or a role"));
      }
      return ReadXml(response.body, "Contents");
    }
  }

  Result<FetchRequest> Signed(FetchRequest request) {
    const auto now = std::chrono::system_clock::now();
    if (!looked_ || credentials_.expires - kSoon < now) {
      ONNXD_ASSIGN_OR_RETURN(credentials_, FindAwsCredentials(fetcher_));
      looked_ = true;
    }
    SignAws(credentials_, region_, now, request);
    return request;
  }

  const SourceUrl url_;
  const Fetcher& fetcher_;
  std::string region_;
  AwsCredentials credentials_;
  bool looked_ = false;
};

}  // namespace

std::unique_ptr<ObjectStore> NewS3Store(const SourceUrl& url, const Fetcher& fetcher) {
  return std::make_unique<S3Store>(url, fetcher);
}

}  // namespace onnxd
