#include "server/models/loaded_list.h"

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

}  // namespace

Status WriteLoadedList(const std::string& folder, const std::set<std::string>& models) {
  std::error_code error;
  fs::create_directories(folder, error);
  const Status written = ReplaceFile((fs::path(folder) / kFile).string(), TextOf(models), 0600);
  return written.WithContext("a restart will not load what was loaded by request");
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
