// RemoteSources: the repositories of a configuration that are not on this machine, kept up to date.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/config/server_options.h"
#include "server/metrics/server_metrics.h"
#include "server/sources/remote_repository.h"

namespace onnxd {

// One thread, but for Stop, which is for any.
class RemoteSources {
 public:
  // Of models.repository. kInvalidArgument for a wrong URL, kUnavailable where sources.cache_dir
  // cannot be used.
  static Result<std::unique_ptr<RemoteSources>> Open(const ServerOptions& options);
  ~RemoteSources();
  RemoteSources(const RemoteSources&) = delete;
  RemoteSources& operator=(const RemoteSources&) = delete;

  bool empty() const { return repositories_.empty(); }
  // models.repository with folders in place of URLs; a repository that comes from elsewhere is
  // followed, unless something else was said.
  void Localize(ServerOptions& options) const;

  // Brings all up to date. A source that fails and of which something is here already is logged
  // and passed over; else why it failed.
  Status SyncFirst(ServerMetrics& metrics);
  // From now on, each sources.poll_interval_s, on a thread of its own.
  void Follow(ServerMetrics& metrics);
  // What goes on is broken off.
  void Stop();

 private:
  RemoteSources() = default;
  bool SyncAll(ServerMetrics& metrics);  // whether all succeeded

  std::atomic<bool> stopping_{false};
  std::atomic<ServerMetrics*> metrics_{nullptr};
  std::vector<std::unique_ptr<RemoteRepository>> repositories_;
  std::vector<Status> last_;  // of each: how its last Sync ended
  int64_t interval_s_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace onnxd
