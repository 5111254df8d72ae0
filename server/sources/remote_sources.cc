#include "server/sources/remote_sources.h"

#include <chrono>

#include "runtime/base/log.h"
#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

std::string CacheFolder(const ServerOptions& options) {
  if (!options.sources.cache_dir.empty()) return options.sources.cache_dir;
  const std::string cache = FromEnvironment("XDG_CACHE_HOME");
  if (!cache.empty()) return cache + "/onnxd/sources";
  const std::string home = FromEnvironment("HOME");
  return home.empty() || home == "/" ? "/var/cache/onnxd/sources" : home + "/.cache/onnxd/sources";
}

}  // namespace

Result<std::unique_ptr<RemoteSources>> RemoteSources::Open(const ServerOptions& options) {
  std::unique_ptr<RemoteSources> sources(new RemoteSources);
  sources->interval_s_ = options.sources.poll_interval_s;
  for (const std::string& path : SplitList(options.models.repository, ',')) {
    if (!IsRemote(path)) continue;
    RemoteRepository::Options of;
    of.cache_dir = CacheFolder(options);
    of.cache_bytes = options.sources.cache_bytes;
    of.model_name = options.models.model_name;
    of.versions = options.models.versions;
    of.count_bytes = [raw = sources.get()](int64_t bytes) {
      if (ServerMetrics* metrics = raw->metrics_) metrics->CountSourceBytes(bytes);
    };
    ONNXD_ASSIGN_OR_RETURN(auto repository,
                           RemoteRepository::Open(path, std::move(of), &sources->stopping_));
    sources->repositories_.push_back(std::move(repository));
  }
  sources->last_.resize(sources->repositories_.size());
  return sources;
}

RemoteSources::~RemoteSources() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

void RemoteSources::Localize(ServerOptions& options) const {
  if (empty()) return;
  std::vector<std::string> paths = SplitList(options.models.repository, ',');
  for (std::string& path : paths) {
    for (const auto& repository : repositories_) {
      if (repository->url() == path) path = repository->folder();
    }
  }
  options.models.repository = StrJoin(paths, ",");
  if (options.models.control_mode == "auto") options.models.control_mode = "poll";
}

bool RemoteSources::SyncAll(ServerMetrics& metrics) {
  metrics_ = &metrics;
  bool succeeded = true;
  for (size_t i = 0; i < repositories_.size(); ++i) {
    const Status status = repositories_[i]->Sync();
    if (status.code() == StatusCode::kCancelled) return false;
    metrics.CountSourceSync(status.ok());
    // Once, until it is something else.
    if (!status.ok() && status.message() != last_[i].message()) LogWarning(status.ToString());
    if (status.ok() && !last_[i].ok()) LogInfo(StrCat(repositories_[i]->url(), " answers again"));
    last_[i] = status;
    succeeded &= status.ok();
  }
  return succeeded;
}

Status RemoteSources::SyncFirst(ServerMetrics& metrics) {
  if (SyncAll(metrics)) return Status::Ok();
  for (size_t i = 0; i < repositories_.size(); ++i) {
    if (!last_[i].ok() && !repositories_[i]->has_models()) return last_[i];
    if (!last_[i].ok()) {
      LogWarning(StrCat(repositories_[i]->url(), ": what came before serves"));
    }
  }
  return stopping_ ? Cancelled("the server is stopping") : Status::Ok();
}

void RemoteSources::Follow(ServerMetrics& metrics) {
  if (empty() || interval_s_ == 0) return;
  thread_ = std::thread([this, &metrics] {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::seconds(interval_s_),
                           [this] { return stopping_.load(); })) {
      lock.unlock();
      (void)SyncAll(metrics);  // failures are logged
      lock.lock();
    }
  });
}

void RemoteSources::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (const auto& repository : repositories_) repository->Abort();
  wake_.notify_all();
}

}  // namespace onnxd
