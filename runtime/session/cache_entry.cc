#include "runtime/session/cache_entry.h"

#include <algorithm>
#include <filesystem>

#include "runtime/base/byte_stream.h"
#include "runtime/base/str_cat.h"
#include "runtime/session/model_preparation.h"

namespace onnxd {
namespace {

void Write(ByteWriter& out, const std::map<std::string, int64_t>& counts) {
  out.Count(counts.size());
  for (const auto& [name, count] : counts) {
    out.Text(name);
    out.Number(count);
  }
}

std::map<std::string, int64_t> ReadCounts(ByteReader& in) {
  std::map<std::string, int64_t> counts;
  const size_t size = in.Count(sizeof(int64_t));
  for (size_t i = 0; i < size && in.ok(); ++i) {
    const std::string name = in.Text();
    counts[name] = in.Number<int64_t>();
  }
  return counts;
}

void Write(ByteWriter& out, const ModelInfo& info) {
  out.Number(info.ir_version);
  Write(out, info.opsets);
  out.Text(info.producer_name);
  out.Text(info.producer_version);
  out.Number(info.model_version);
  out.Count(info.metadata.size());
  for (const auto& [key, value] : info.metadata) {
    out.Text(key);
    out.Text(value);
  }
  Write(out, info.operator_counts);
  out.Number(info.parameters);
  out.Text(info.rows_depend);
}

ModelInfo ReadInfo(ByteReader& in) {
  ModelInfo info;
  info.ir_version = in.Number<int64_t>();
  info.opsets = ReadCounts(in);
  info.producer_name = in.Text();
  info.producer_version = in.Text();
  info.model_version = in.Number<int64_t>();
  const size_t entries = in.Count(sizeof(int64_t));
  for (size_t i = 0; i < entries && in.ok(); ++i) {
    std::string key = in.Text();
    info.metadata.emplace_back(std::move(key), in.Text());
  }
  info.operator_counts = ReadCounts(in);
  info.parameters = in.Number<int64_t>();
  info.rows_depend = in.Text();
  return info;
}

// The signature as a graph of values alone, which an archive can hold.
Graph SignatureGraph(const InferenceSession& session) {
  Graph graph;
  for (const TensorSignature& input : session.inputs()) {
    graph.inputs.push_back(graph.AddValue(input.name, input.type));
  }
  for (const TensorSignature& output : session.outputs()) {
    graph.outputs.push_back(graph.AddValue(output.name, output.type));
  }
  return graph;
}

std::vector<TensorSignature> ReadSignature(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<TensorSignature> signature;
  for (const ValueId id : ids) {
    if (static_cast<size_t>(id) >= graph.value_count()) return {};
    signature.push_back({graph.value(id).name, graph.value(id).type});
  }
  return signature;
}

std::string Beside(const std::string& model, const std::string& relative) {
  return (std::filesystem::path(model).parent_path() / relative).string();
}

// External data must be what it was: each file's contents are compared.
bool SameExternalFiles(const CacheEntry& entry, ByteReader& in) {
  const size_t files = in.Count(sizeof(ContentHash));
  for (size_t i = 0; i < files; ++i) {
    const std::string relative = in.Text();
    const auto expected = in.Number<ContentHash>();
    if (!in.ok()) return false;
    const auto found = entry.cache->HashOf(Beside(entry.files[0].path, relative));
    if (!found.ok() || !(*found == expected)) return false;
  }
  return in.ok();
}

}  // namespace

namespace {

bool AsksForInputs(const SessionOptions& options) {
  return !options.last_rows.output.empty() || !options.dropped_tokens.states.empty();
}

// Whether a model with these inputs may have been asked in vain, and is no other for it.
bool MayHaveNone(const std::vector<TensorSignature>& inputs, const SessionOptions& options) {
  return std::none_of(inputs.begin(), inputs.end(), [&](const TensorSignature& input) {
    return input.name.starts_with(options.last_rows.beside) ||
           input.name.starts_with(options.dropped_tokens.states);
  });
}

}  // namespace

std::unique_ptr<CacheEntry> EntryOf(const std::string& path, const SessionOptions& options) {
  if (options.cache == nullptr) return nullptr;
  std::string depends_on = StrCat("optimization ", static_cast<int>(options.optimization),
                                  ", precision ", PrecisionName(EffectivePrecision(options)));
  for (const auto& provider : options.providers) {
    const std::string identity = provider->cache_identity();
    if (identity.empty()) return nullptr;
    depends_on += StrCat("\n", identity);
  }
  const auto state = PreparedModelCache::StateOf(path);
  const auto contents = options.cache->HashOf(path);
  if (!state.ok() || !contents.ok()) return nullptr;
  auto entry = std::make_unique<CacheEntry>();
  entry->cache = options.cache;
  entry->plain_key = options.cache->KeyOf(*contents, depends_on);
  entry->key = entry->plain_key;
  if (AsksForInputs(options)) {
    entry->key = options.cache->KeyOf(
        *contents,
        StrCat(depends_on, "\nlast rows of ", options.last_rows.output, " beside ",
               options.last_rows.beside, ", dropped tokens of ", options.dropped_tokens.states));
  }
  entry->files.push_back(*state);
  return entry;
}

namespace {

std::optional<PreparedModel> FindUnder(const std::string& key, const CacheEntry& entry) {
  auto archive = entry.cache->Find(key);
  if (!archive) return std::nullopt;
  ByteReader facts(archive->facts);
  PreparedModel found;
  found.info = ReadInfo(facts);
  if (archive->graphs.size() != 2 || !SameExternalFiles(entry, facts) ||
      !archive->graphs[1].Verify().ok()) {
    entry.cache->Reject(key);
    return std::nullopt;
  }
  const Graph& signature = archive->graphs[0];
  found.inputs = ReadSignature(signature, signature.inputs);
  found.outputs = ReadSignature(signature, signature.outputs);
  found.graph = std::move(archive->graphs[1]);
  found.key = key;
  return found;
}

}  // namespace

std::optional<PreparedModel> FindPreparedModel(const CacheEntry& entry,
                                               const SessionOptions& options) {
  auto found = FindUnder(entry.key, entry);
  if (found || entry.plain_key == entry.key) return found;
  found = FindUnder(entry.plain_key, entry);
  return found && MayHaveNone(found->inputs, options) ? std::move(found) : std::nullopt;
}

Status StorePreparedModel(const CacheEntry& entry, const InferenceSession& session) {
  ByteWriter facts;
  Write(facts, session.info());
  facts.Count(entry.files.size() - 1);
  for (size_t i = 0; i < entry.files.size(); ++i) {
    const FileState& file = entry.files[i];
    ONNXD_ASSIGN_OR_RETURN(const ContentHash contents, entry.cache->HashOf(file.path));
    ONNXD_ASSIGN_OR_RETURN(const FileState now, PreparedModelCache::StateOf(file.path));
    if (!(now == file)) {
      return FailedPrecondition(StrCat(file.path, " changed since the model was read"));
    }
    if (i == 0) continue;
    facts.Text(std::filesystem::path(file.path)
                   .lexically_relative(std::filesystem::path(entry.files[0].path).parent_path())
                   .string());
    facts.Number(contents);
  }
  const Graph signature = SignatureGraph(session);
  return entry.cache->Store(entry.key, {&signature, entry.graph.get()}, facts.bytes());
}

}  // namespace onnxd
