#include "server/models/folder_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "runtime/base/file.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kEvents = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE |
                             IN_MODIFY | IN_ATTRIB | IN_ONLYDIR;
constexpr int kMostWatches = 4096;

// Those that can be read.
std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::vector<fs::path> entries;
  const auto names = ListFolder(folder.string(), kMostWatches);
  if (!names.ok()) return entries;
  for (const std::string& name : *names) entries.push_back(folder / name);
  return entries;
}

}  // namespace

FolderWatch::FolderWatch(std::vector<std::string> roots)
    : roots_(std::move(roots)),
      inotify_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

FolderWatch::~FolderWatch() {
  if (inotify_ >= 0) close(inotify_);
  if (wake_ >= 0) close(wake_);
}

void FolderWatch::Refresh() {
  if (inotify_ < 0) return;
  int left = kMostWatches;
  const auto watch = [&](const fs::path& folder) {
    return left-- > 0 && inotify_add_watch(inotify_, folder.c_str(), kEvents) >= 0;
  };
  for (const std::string& root : roots_) {
    if (!watch(root)) continue;
    for (const fs::path& model : EntriesOf(root)) {
      if (model.filename().string()[0] == '.' || !watch(model)) continue;
      for (const fs::path& version : EntriesOf(model)) watch(version);
    }
  }
}

void FolderWatch::Wait(std::chrono::milliseconds most) {
  std::array<pollfd, 2> descriptors = {pollfd{wake_, POLLIN, 0}, pollfd{inotify_, POLLIN, 0}};
  poll(descriptors.data(), descriptors.size(), static_cast<int>(most.count()));
  std::array<char, 4096> events;
  while (inotify_ >= 0 && read(inotify_, events.data(), events.size()) > 0) continue;
  uint64_t wakes = 0;
  (void)!read(wake_, &wakes, sizeof(wakes));
}

void FolderWatch::Wake() {
  const uint64_t one = 1;
  if (wake_ >= 0 && write(wake_, &one, sizeof(one)) < 0) return;  // it is about to wake anyway
}

}  // namespace onnxd
