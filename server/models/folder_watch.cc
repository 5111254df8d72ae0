#include "server/models/folder_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <filesystem>

namespace onnxd {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kEvents = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE |
                             IN_MODIFY | IN_ATTRIB | IN_ONLYDIR;
constexpr int kMostWatches = 4096;

}  // namespace

FolderWatch::FolderWatch(std::string root)
    : root_(std::move(root)),
      inotify_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      stop_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

FolderWatch::~FolderWatch() {
  if (inotify_ >= 0) close(inotify_);
  if (stop_ >= 0) close(stop_);
}

void FolderWatch::Refresh() {
  if (inotify_ < 0) return;
  int left = kMostWatches;
  const auto watch = [&](const fs::path& folder) {
    return left-- > 0 && inotify_add_watch(inotify_, folder.c_str(), kEvents) >= 0;
  };
  if (!watch(root_)) return;
  std::error_code error;
  for (const auto& model : fs::directory_iterator(root_, error)) {
    if (model.path().filename().string()[0] == '.' || !watch(model.path())) continue;
    for (const auto& version : fs::directory_iterator(model.path(), error)) watch(version.path());
  }
}

bool FolderWatch::Wait(std::chrono::milliseconds most) {
  std::array<pollfd, 2> descriptors = {pollfd{stop_, POLLIN, 0}, pollfd{inotify_, POLLIN, 0}};
  poll(descriptors.data(), descriptors.size(), static_cast<int>(most.count()));
  std::array<char, 4096> events;
  while (inotify_ >= 0 && read(inotify_, events.data(), events.size()) > 0) continue;
  return (descriptors[0].revents & POLLIN) == 0;
}

void FolderWatch::Stop() {
  const uint64_t one = 1;
  if (stop_ >= 0 && write(stop_, &one, sizeof(one)) < 0) return;  // it is full of such already
}

}  // namespace onnxd
