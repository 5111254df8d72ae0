#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace onnxd {

// The folders under `root`, sorted, that hold one of `files` and whose path below it contains
// `filter`.
inline std::vector<std::filesystem::path> CaseFolders(const std::filesystem::path& root,
                                                      const std::vector<std::string_view>& files,
                                                      std::string_view filter) {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string file = entry.path().filename().string();
    if (std::find(files.begin(), files.end(), file) == files.end()) continue;
    std::filesystem::path folder = entry.path().parent_path();
    if (std::filesystem::relative(folder, root).string().find(filter) == std::string::npos)
      continue;
    folders.push_back(std::move(folder));
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace onnxd
