#include "server/sources/aws.h"

#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/str_cat.h"
#include "server/sources/digest.h"
#include "server/sources/object_store.h"
#include "server/sources/xml_records.h"

namespace onnxd {
namespace {

using Time = std::chrono::system_clock::time_point;

constexpr const char* kMachine = "http://169.254.169.254";
constexpr const char* kContainer = "http://169.254.170.2";
constexpr const char* kNoBody = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// Of a file in the form of ~/.aws/credentials, the keys of one section.
std::map<std::string, std::string> SectionOf(const std::string& text, const std::string& section) {
  std::map<std::string, std::string> keys;
  bool inside = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = Trimmed(line);
    if (line.starts_with('[')) {
      const std::string name = Trimmed(line.substr(1, line.find(']') - 1));
      inside = name == section || name == "profile " + section;
    } else if (const size_t equals = line.find('='); inside && equals != std::string::npos) {
      keys[Trimmed(line.substr(0, equals))] = Trimmed(line.substr(equals + 1));
    }
  }
  return keys;
}

std::string AwsFile(const char* variable, const std::string& usual) {
  const std::string named = FromEnvironment(variable);
  return named.empty() ? HomeFile(usual) : SmallFile(named);
}

std::string Profile() {
  const std::string named = FromEnvironment("AWS_PROFILE");
  return named.empty() ? "default" : named;
}

// "2026-11-23T14:00:00Z"
Time TimeOf(const std::string& text) {
  std::tm parts{};
  if (strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return Time::max();
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

Result<AwsCredentials> FromJson(const std::string& text) {
  const auto document = nlohmann::json::parse(text, nullptr, false);
  if (!document.is_object()) return Unavailable("credentials that are no JSON");
  AwsCredentials found;
  found.access_key = document.value("AccessKeyId", "");
  found.secret_key = document.value("SecretAccessKey", "");
  found.session_token = document.value("Token", "");
  found.expires = TimeOf(document.value("Expiration", ""));
  return found;
}

Result<AwsCredentials> FromUrl(const Fetcher& fetcher, const FetchRequest& request) {
  ONNXD_ASSIGN_OR_RETURN(const auto response, fetcher.Fetch(request));
  if (response.status != 200) return StatusOf(response, "credentials");
  return FromJson(response.body);
}

Result<AwsCredentials> FromWebIdentity(const Fetcher& fetcher, const std::string& token_file) {
  std::string endpoint = FromEnvironment("AWS_ENDPOINT_URL_STS");
  if (endpoint.empty()) endpoint = StrCat("https://sts.", AwsRegion(), ".amazonaws.com");
  std::string session = FromEnvironment("AWS_ROLE_SESSION_NAME");
  if (session.empty()) session = "onnxd";
  FetchRequest request;
  request.method = "POST";
  request.url = endpoint + "/";
  request.headers["Content-Type"] = "application/x-www-form-urlencoded";
  request.body = StrCat("Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=",
                        EncodeUrl(FromEnvironment("AWS_ROLE_ARN"), false),
                        "&RoleSessionName=", EncodeUrl(session, false),
                        "&WebIdentityToken=", EncodeUrl(Trimmed(SmallFile(token_file)), false));
  ONNXD_ASSIGN_OR_RETURN(const auto response, fetcher.Fetch(request));
  if (response.status != 200) return StatusOf(response, "AssumeRoleWithWebIdentity");
  ONNXD_ASSIGN_OR_RETURN(auto read, ReadXml(response.body, "Credentials"));
  if (read.records.empty()) return Unavailable("AssumeRoleWithWebIdentity gives no credentials");
  auto& record = read.records[0];
  return AwsCredentials{record["AccessKeyId"], record["SecretAccessKey"], record["SessionToken"],
                        TimeOf(record["Expiration"])};
}

// Nothing where this machine is none of Amazon's.
AwsCredentials FromMachine(const Fetcher& fetcher) {
  if (FromEnvironment("AWS_EC2_METADATA_DISABLED") == "true") return {};
  std::string machine = FromEnvironment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (machine.empty()) machine = kMachine;
  const std::string token = fetcher.AskMachine({machine + "/latest/api/token",
                                                "PUT",
                                                {{"X-aws-ec2-metadata-token-ttl-seconds", "300"}},
                                                ""});
  if (token.empty()) return {};
  const std::string roles = machine + "/latest/meta-data/iam/security-credentials/";
  const std::map<std::string, std::string> headers = {{"X-aws-ec2-metadata-token", token}};
  const std::string role = Trimmed(fetcher.AskMachine({roles, "GET", headers, ""}));
  if (role.empty()) return {};
  const auto found =
      FromJson(fetcher.AskMachine({roles + EncodeUrl(role, false), "GET", headers, ""}));
  return found.ok() ? *found : AwsCredentials();
}

std::string Formatted(Time time, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, format, &parts)};
}

}  // namespace

Result<AwsCredentials> FindAwsCredentials(const Fetcher& fetcher) {
  if (const std::string key = FromEnvironment("AWS_ACCESS_KEY_ID"); !key.empty()) {
    return AwsCredentials{key, FromEnvironment("AWS_SECRET_ACCESS_KEY"),
                          FromEnvironment("AWS_SESSION_TOKEN")};
  }
  if (const std::string file = FromEnvironment("AWS_WEB_IDENTITY_TOKEN_FILE"); !file.empty()) {
    return FromWebIdentity(fetcher, file);
  }
  for (const auto& text : {AwsFile("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
                           AwsFile("AWS_CONFIG_FILE", ".aws/config")}) {
    auto keys = SectionOf(text, Profile());
    if (keys.contains("aws_access_key_id")) {
      return AwsCredentials{keys["aws_access_key_id"], keys["aws_secret_access_key"],
                            keys["aws_session_token"]};
    }
  }
  FetchRequest request;
  if (const std::string path = FromEnvironment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
      !path.empty()) {
    request.url = kContainer + path;
  } else {
    request.url = FromEnvironment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  }
  if (!request.url.empty()) {
    std::string token = FromEnvironment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const std::string file = FromEnvironment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    if (!file.empty()) token = Trimmed(SmallFile(file));
    if (!token.empty()) request.headers["Authorization"] = token;
    return FromUrl(fetcher, request);
  }
  return FromMachine(fetcher);
}

std::string AwsRegion() {
  for (const char* variable : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
    if (const std::string region = FromEnvironment(variable); !region.empty()) return region;
  }
  auto keys = SectionOf(AwsFile("AWS_CONFIG_FILE", ".aws/config"), Profile());
  return keys["region"].empty() ? "us-east-1" : keys["region"];
}

void SignAws(const AwsCredentials& credentials, const std::string& region, Time now,
             FetchRequest& request) {
  if (!credentials.given()) return;
  const size_t host_at = request.url.find("://") + 3;
  const size_t path_at = std::min(request.url.find('/', host_at), request.url.size());
  const size_t query_at = std::min(request.url.find('?'), request.url.size());
  const std::string host = request.url.substr(host_at, path_at - host_at);
  const std::string path = request.url.substr(path_at, query_at - path_at);
  const std::string query = query_at == request.url.size() ? "" : request.url.substr(query_at + 1);
  const std::string day = Formatted(now, "%Y%m%d"), moment = Formatted(now, "%Y%m%dT%H%M%SZ");
  request.headers["x-amz-date"] = moment;
  request.headers["x-amz-content-sha256"] = kNoBody;
  if (!credentials.session_token.empty()) {
    request.headers["x-amz-security-token"] = credentials.session_token;
  }
  std::map<std::string, std::string> headers = {{"host", host}};
  for (const auto& [name, value] : request.headers) {
    std::string lowered = name;
    for (char& c : lowered) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (lowered == "range" || lowered.starts_with("x-amz-")) headers[lowered] = Trimmed(value);
  }
  std::string lines;
  std::vector<std::string> names;
  for (const auto& [name, value] : headers) {
    lines += StrCat(name, ":", value, "\n");
    names.push_back(name);
  }
  const std::string canonical = StrCat(request.method, "\n", path, "\n", query, "\n", lines, "\n",
                                       StrJoin(names, ";"), "\n", kNoBody);
  const std::string scope = StrCat(day, "/", region, "/s3/aws4_request");
  const std::string to_sign =
      StrCat("AWS4-HMAC-SHA256\n", moment, "\n", scope, "\n", Hex(Sha256(canonical)));
  std::string key = "AWS4" + credentials.secret_key;
  for (const std::string& part : {day, region, std::string("s3"), std::string("aws4_request")}) {
    key = HmacSha256(key, part);
  }
  request.headers["Authorization"] =
      StrCat("AWS4-HMAC-SHA256 Credential=", credentials.access_key, "/", scope,
             ",SignedHeaders=", StrJoin(names, ";"), ",Signature=", Hex(HmacSha256(key, to_sign)));
}

}  // namespace onnxd
