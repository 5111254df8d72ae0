#include "server/sources/object_store.h"

#include <cstdlib>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"

namespace onnxd {

std::unique_ptr<ObjectStore> NewObjectStore(const SourceUrl& url, const Fetcher& fetcher) {
  switch (url.kind) {
    case SourceUrl::Kind::kS3:
      return NewS3Store(url, fetcher);
    case SourceUrl::Kind::kGoogle:
      return NewGoogleStore(url, fetcher);
    case SourceUrl::Kind::kAzure:
      return NewAzureStore(url, fetcher);
    case SourceUrl::Kind::kHuggingFace:
      return NewHuggingFaceStore(url, fetcher);
    case SourceUrl::Kind::kHttp:
      return NewHttpStore(url, fetcher);
  }
  return nullptr;
}

std::string PathBelow(const std::string& prefix, const std::string& key) {
  if (prefix.empty()) return key;
  if (key.starts_with(prefix + "/")) return key.substr(prefix.size() + 1);
  if (!prefix.ends_with(".onnx") || !key.starts_with(prefix)) return "";
  return key.substr(prefix.rfind('/') + 1);
}

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string HomeFile(const std::string& path) {
  const std::string home = FromEnvironment("HOME");
  return home.empty() ? "" : SmallFile(StrCat(home, "/", path));
}

std::string SmallFile(const std::string& path) {
  if (path.empty()) return "";
  auto text = ReadFile(path, 1 << 20);
  return text.ok() ? *std::move(text) : "";
}

}  // namespace onnxd
