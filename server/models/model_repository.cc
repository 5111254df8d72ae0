#include "server/models/model_repository.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

// A positive decimal number without leading zeros.
std::optional<int64_t> VersionNumber(const std::string& name) {
  int64_t version = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), version);
  const bool whole = error == std::errc() && stop == name.data() + name.size();
  return whole && version > 0 && name[0] != '0' ? std::optional(version) : std::nullopt;
}

std::optional<WantedVersion> NewestVersion(const fs::path& folder) {
  std::optional<WantedVersion> newest;
  int64_t newest_number = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const auto number = VersionNumber(name);
    const fs::path file = entry.path() / "model.onnx";
    if (!number || *number <= newest_number || !fs::is_regular_file(file, error)) continue;
    newest_number = *number;
    newest = WantedVersion{folder.filename().string(), name, file.string()};
  }
  return newest;
}

}  // namespace

bool IsModelName(const std::string& name) {
  return !name.empty() && name.size() <= 128 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c > 0x20 && c != 0x7f && c != '/' && c != '\\' && c != '%';
         });
}

Result<std::vector<WantedVersion>> ScanRepository(const std::string& path,
                                                  const std::string& model_name) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return NotFound(StrCat("no such model or repository: ", path));
  if (fs::is_regular_file(status)) {
    const std::string name = model_name.empty() ? fs::path(path).stem().string() : model_name;
    if (!IsModelName(name)) return InvalidArgument(StrCat("'", name, "' cannot name a model"));
    return std::vector<WantedVersion>{{name, "1", path}};
  }
  if (!fs::is_directory(status)) {
    return InvalidArgument(StrCat(path, " is neither a model file nor a folder"));
  }
  std::vector<WantedVersion> wanted;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (!IsModelName(name) || !entry.is_directory(error)) continue;
    if (auto version = NewestVersion(entry.path())) wanted.push_back(std::move(*version));
  }
  if (wanted.empty()) {
    return InvalidArgument(
        StrCat("no models in ", path, ": expected ", path, "/NAME/VERSION/model.onnx"));
  }
  std::sort(wanted.begin(), wanted.end(),
            [](const WantedVersion& a, const WantedVersion& b) { return a.model < b.model; });
  return wanted;
}

}  // namespace onnxd
