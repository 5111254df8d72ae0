#include "server/models/model_repository.h"

#include <sys/stat.h>

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

constexpr const char* kModelFile = "model.onnx";
constexpr size_t kMostEntries = 100'000;  // looked at in one folder
constexpr size_t kMostFiles = 1000;       // of one version

uint64_t Mix(uint64_t hash, uint64_t number) {
  // The finalizer of splitmix64 (Steele, Lea and Flood, 2014).
  uint64_t z = hash ^ (number + 0x9e3779b97f4a7c15u + (hash << 6));
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void AddFile(const fs::path& path, WantedVersion& version) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return;
  uint64_t hash = Mix(static_cast<uint64_t>(status.st_size), static_cast<uint64_t>(status.st_ino));
  hash = Mix(hash, static_cast<uint64_t>(status.st_mtim.tv_sec));
  hash = Mix(hash, static_cast<uint64_t>(status.st_mtim.tv_nsec));
  // A sum: files come in any order.
  version.fingerprint += Mix(hash, std::hash<std::string>{}(path.filename().string()));
  version.changed = std::max<int64_t>(version.changed, status.st_mtim.tv_sec);
}

// A model in a folder of its own shares it with its data; a single file may stand anywhere.
void AddFiles(WantedVersion& version) {
  const fs::path path(version.path);
  if (path.filename() != kModelFile) return AddFile(path, version);
  size_t files = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path.parent_path(), error)) {
    if (++files > kMostFiles) return;
    AddFile(entry.path(), version);
  }
}

Result<std::vector<WantedVersion>> VersionsOf(const fs::path& folder, const VersionPolicy& policy) {
  std::vector<int64_t> numbers;
  std::error_code error;
  size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (++entries > kMostEntries)
      return InvalidArgument(StrCat("too many files in ", folder.string()));
    const auto number = VersionNumber(entry.path().filename().string());
    if (number && fs::is_regular_file(entry.path() / kModelFile, error)) numbers.push_back(*number);
  }
  std::vector<WantedVersion> wanted;
  for (const int64_t number : ChooseVersions(std::move(numbers), policy)) {
    const fs::path path = folder / std::to_string(number) / kModelFile;
    wanted.push_back({folder.filename().string(), std::to_string(number), path.string()});
    AddFiles(wanted.back());
  }
  return wanted;
}

}  // namespace

uint64_t FingerprintOf(const WantedVersion& version) {
  WantedVersion now{version.model, version.version, version.path};
  AddFiles(now);
  return now.fingerprint;
}

bool IsModelName(const std::string& name) {
  return !name.empty() && name.size() <= 128 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c > 0x20 && c != 0x7f && c != '/' && c != '\\' && c != '%';
         });
}

Result<std::vector<WantedVersion>> ScanRepository(const std::string& path,
                                                  const std::string& model_name,
                                                  const VersionPolicy& policy) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return NotFound(StrCat("no such model or repository: ", path));
  if (fs::is_regular_file(status)) {
    const std::string name = model_name.empty() ? fs::path(path).stem().string() : model_name;
    if (!IsModelName(name)) return InvalidArgument(StrCat("'", name, "' cannot name a model"));
    WantedVersion version{name, "1", path};
    AddFiles(version);
    return std::vector<WantedVersion>{std::move(version)};
  }
  if (!fs::is_directory(status)) {
    return InvalidArgument(StrCat(path, " is neither a model file nor a folder"));
  }
  std::vector<WantedVersion> wanted;
  fs::directory_iterator entries(path, error);
  if (error) return Unavailable(StrCat("cannot read ", path, ": ", error.message()));
  size_t count = 0;
  for (const auto& entry : entries) {
    if (++count > kMostEntries) return InvalidArgument(StrCat("too many files in ", path));
    const std::string name = entry.path().filename().string();
    if (!IsModelName(name) || !entry.is_directory(error)) continue;
    ONNXD_ASSIGN_OR_RETURN(auto versions, VersionsOf(entry.path(), policy));
    std::move(versions.begin(), versions.end(), std::back_inserter(wanted));
  }
  std::stable_sort(
      wanted.begin(), wanted.end(),
      [](const WantedVersion& a, const WantedVersion& b) { return a.model < b.model; });
  return wanted;
}

}  // namespace onnxd
