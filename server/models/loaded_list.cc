#include "server/models/loaded_list.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"
#include "server/models/model_repository.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "loaded_models";
constexpr const char* kFirstLine = "onnxd loaded models 1";
constexpr uint64_t kMostBytes = 16 << 20;

std::string TextOf(const std::set<std::string>& models) {
  std::string text = StrCat(kFirstLine, "\n");
  for (const std::string& model : models) text += model + "\n";
  return StrCat(text, models.size(), " models\n");  // whole, if it ends so
}

bool WriteAndSync(const fs::path& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return false;
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fsync(file) == 0;
  return close(file) == 0 && written;
}

}  // namespace

Status WriteLoadedList(const std::string& folder, const std::set<std::string>& models) {
  std::error_code error;
  fs::create_directories(folder, error);
  const fs::path path = fs::path(folder) / kFile;
  const fs::path aside = StrCat(path.string(), ".", getpid());
  if (WriteAndSync(aside, TextOf(models))) {
    fs::rename(aside, path, error);
    if (!error) return Status::Ok();
  }
  std::error_code none;
  fs::remove(aside, none);
  return Unavailable(StrCat("cannot write ", path.string(),
                            ": a restart will not load what was loaded by request"));
}

Result<std::set<std::string>> ReadLoadedList(const std::string& folder) {
  const std::string path = (fs::path(folder) / kFile).string();
  std::error_code error;
  if (!fs::exists(path, error)) return std::set<std::string>();
  ONNXD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
  std::set<std::string> models;
  const auto lines = SplitList(text, '\n');
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    if (IsModelName(lines[i])) models.insert(lines[i]);
  }
  if (TextOf(models) != text) return Status(StatusCode::kDataLoss, StrCat(path, " is damaged"));
  return models;
}

}  // namespace onnxd
