// CacheEntry: a session's place in the PreparedModelCache, and what it puts there.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/graph/model.h"
#include "runtime/session/inference_session.h"
#include "runtime/session/prepared_model_cache.h"

namespace onnxd {

struct CacheEntry {
  std::shared_ptr<PreparedModelCache> cache;
  std::string key;
  // Where options ask for inputs that only some models get (LastRows, DroppedTokens): of a model
  // that has none of them and is the same without. Else the same key.
  std::string plain_key;
  std::vector<FileState> files;  // that the model was read from: first itself
  std::shared_ptr<Graph> graph;  // prepared, with its initializers; null until then
};

// What a found entry holds.
struct PreparedModel {
  std::vector<TensorSignature> inputs, outputs;
  ModelInfo info;
  Graph graph;
  std::string key;
};

// The entry of a model file under these options; null when there is no cache, or a provider cannot
// say what its kernels depend on, or the file cannot be read.
std::unique_ptr<CacheEntry> EntryOf(const std::string& path, const SessionOptions& options);

// Under either key. Nothing when the cache has no such entry, or one whose external data is another
// by now.
std::optional<PreparedModel> FindPreparedModel(const CacheEntry& entry,
                                               const SessionOptions& options);

// Stores the entry's graph. kFailedPrecondition when a file of the model changed since it was read.
Status StorePreparedModel(const CacheEntry& entry, const InferenceSession& session);

}  // namespace onnxd
