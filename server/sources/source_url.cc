#include "server/sources/source_url.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using Kind = SourceUrl::Kind;

std::optional<Kind> KindOf(const std::string& text) {
  if (text.starts_with("s3://")) return Kind::kS3;
  if (text.starts_with("gs://")) return Kind::kGoogle;
  if (text.starts_with("az://")) return Kind::kAzure;
  if (text.starts_with("hf://")) return Kind::kHuggingFace;
  if (text.starts_with("https://") || text.starts_with("http://")) return Kind::kHttp;
  return std::nullopt;
}

std::string Trimmed(std::string path) {
  while (path.starts_with('/')) path.erase(0, 1);
  while (path.ends_with('/')) path.pop_back();
  return path;
}

bool IsHex(const std::string& text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isxdigit(c) != 0;
         });
}

Status ParseHttp(const std::string& text, SourceUrl& url) {
  const size_t fragment = text.find('#');
  url.path = text.substr(0, fragment);
  const size_t host = url.path.find("://") + 3;
  const size_t slash = url.path.find('/', host);
  if (slash == std::string::npos || slash == host) {
    return InvalidArgument("expected https://HOST/PATH.onnx");
  }
  if (url.path.find('@', host) < slash) {
    return InvalidArgument("a password does not belong into a URL: ~/.netrc has them");
  }
  if (fragment == std::string::npos) return Status::Ok();
  const std::string said = text.substr(fragment + 1);
  if (!said.starts_with("sha256=") || !IsHex(said.substr(7), 64)) {
    return InvalidArgument("behind '#' only sha256=, and 64 hexadecimal digits");
  }
  url.sha256 = said.substr(7);
  std::transform(url.sha256.begin(), url.sha256.end(), url.sha256.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return Status::Ok();
}

Status ParseHuggingFace(const std::string& rest, SourceUrl& url) {
  const size_t slash = rest.find('/');
  if (slash == std::string::npos || slash == 0) {
    return InvalidArgument("expected hf://ORGANISATION/MODEL@REVISION/FILE");
  }
  const size_t end = rest.find_first_of("@/", slash + 1);
  url.bucket = rest.substr(0, end);
  url.revision = "main";
  size_t file = end;
  if (end != std::string::npos && rest[end] == '@') {
    file = rest.find('/', end);
    url.revision = rest.substr(end + 1, file == std::string::npos ? file : file - end - 1);
  }
  if (file != std::string::npos) url.path = Trimmed(rest.substr(file));
  if (url.bucket.ends_with('/') || url.revision.empty()) {
    return InvalidArgument("expected hf://ORGANISATION/MODEL@REVISION/FILE");
  }
  return Status::Ok();
}

Status ParseBucket(const std::string& rest, SourceUrl& url) {
  const size_t slash = rest.find('/');
  url.bucket = rest.substr(0, slash);
  if (slash != std::string::npos) url.path = Trimmed(rest.substr(slash));
  const bool plain = std::all_of(url.bucket.begin(), url.bucket.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '$';
  });
  if (url.bucket.empty() || !plain) return InvalidArgument("expected a bucket's name behind ://");
  return Status::Ok();
}

}  // namespace

bool IsRemote(const std::string& text) { return KindOf(text).has_value(); }

Result<SourceUrl> ParseSourceUrl(const std::string& text) {
  const auto kind = KindOf(text);
  const auto context = StrCat("'", text.substr(0, 256), "'");
  if (!kind)
    return InvalidArgument("it begins with none of s3, gs, az, hf, https").WithContext(context);
  const bool is_text =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c != 0x7f; });
  if (!is_text) return InvalidArgument("it has spaces or control characters").WithContext(context);
  SourceUrl url;
  url.kind = *kind;
  url.text = text;
  url.shown = text.substr(0, text.find_first_of("?#"));
  const std::string rest = text.substr(text.find("://") + 3);
  const Status parsed = *kind == Kind::kHttp          ? ParseHttp(text, url)
                        : *kind == Kind::kHuggingFace ? ParseHuggingFace(rest, url)
                                                      : ParseBucket(rest, url);
  if (!parsed.ok()) return parsed.WithContext(context);
  return url;
}

std::string EncodeUrl(const std::string& text, bool keep_slashes) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const unsigned char c : text) {
    const bool stays = std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '~' ||
                       (keep_slashes && c == '/');
    if (stays) {
      out += static_cast<char>(c);
    } else {
      out += {'%', kDigits[c >> 4], kDigits[c & 15]};
    }
  }
  return out;
}

std::string DecodeUrl(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && IsHex(text.substr(i + 1, 2), 2)) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

}  // namespace onnxd
