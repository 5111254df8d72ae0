// ObjectStore: the objects below one SourceUrl, whoever keeps them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/sources/digest.h"
#include "server/sources/fetch.h"
#include "server/sources/source_url.h"

namespace onnxd {

struct RemoteObject {
  std::string path;      // below the URL's; with nothing below, the last part of the URL's own
  std::string url;       // whose bytes it has
  std::string revision;  // changes with its contents; empty: nobody knows
  int64_t bytes = -1;    // -1: nobody knows
  Checksum checksum;
};

// One thread.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  // kNotFound, kPermissionDenied, kUnavailable, kUnauthenticated where no credentials were found
  // and some are needed; kResourceExhausted for more than 100,000.
  virtual Result<std::vector<RemoteObject>> List() = 0;
  // What reads the object from that byte on, with what lets us.
  virtual Result<FetchRequest> Read(const RemoteObject& object, int64_t offset) = 0;
};

inline constexpr size_t kMostObjects = 100'000;

// With credentials from the usual places: see the files of each. `fetcher` outlives it.
std::unique_ptr<ObjectStore> NewObjectStore(const SourceUrl& url, const Fetcher& fetcher);

std::unique_ptr<ObjectStore> NewS3Store(const SourceUrl& url, const Fetcher& fetcher);
std::unique_ptr<ObjectStore> NewGoogleStore(const SourceUrl& url, const Fetcher& fetcher);
std::unique_ptr<ObjectStore> NewAzureStore(const SourceUrl& url, const Fetcher& fetcher);
std::unique_ptr<ObjectStore> NewHuggingFaceStore(const SourceUrl& url, const Fetcher& fetcher);
std::unique_ptr<ObjectStore> NewHttpStore(const SourceUrl& url, const Fetcher& fetcher);

// `key` as seen from `prefix`: nothing where it is not below, and is not one that begins with it
// and is a file (model.onnx, model.onnx_data).
std::string PathBelow(const std::string& prefix, const std::string& key);

// Of the environment; empty where it is not set.
std::string FromEnvironment(const char* name);
// The home folder's file; empty where there is none.
std::string HomeFile(const std::string& path);
// The text of a small file; empty where it cannot be read.
std::string SmallFile(const std::string& path);

}  // namespace onnxd
