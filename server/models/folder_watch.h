// FolderWatch: notices changes below repository folders, by inotify where the file system has it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

// One thread, except Wake.
class FolderWatch {
 public:
  explicit FolderWatch(std::vector<std::string> roots);
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  // Watches the roots, their folders and theirs, a few thousand in all; what is watched already
  // stays.
  void Refresh();

  // Until something changed, Wake was called, or so long.
  void Wait(std::chrono::milliseconds most);

  // Ends this Wait, or the next one. Any thread.
  void Wake();

 private:
  const std::vector<std::string> roots_;
  int inotify_ = -1, wake_ = -1;
};

}  // namespace onnxd
