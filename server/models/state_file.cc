#include "server/models/state_file.h"

#include <charconv>
#include <filesystem>
#include <sstream>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostBytes = 16 << 20;

std::string PathOf(const std::string& folder, const StateFile& file) {
  return (fs::path(folder) / file.name).string();
}

std::string TextOf(const StateFile& file, const std::vector<std::string>& lines) {
  std::string text = StrCat("onnxd ", file.kind, " ", file.format, "\n");
  for (const std::string& line : lines) text += line + "\n";
  return StrCat(text, lines.size(), " ", file.unit, "\n");  // whole, if it ends so
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Of the first line; 0: that is none of this kind.
int FormatOf(std::string_view text, const StateFile& file) {
  const std::string begin = StrCat("onnxd ", file.kind, " ");
  const size_t end = text.find('\n');
  if (!text.starts_with(begin) || end == std::string_view::npos) return 0;
  int format = 0;
  const auto read = std::from_chars(text.data() + begin.size(), text.data() + end, format);
  return read.ec == std::errc() && read.ptr == text.data() + end ? format : 0;
}

}  // namespace

Status WriteStateFile(const std::string& folder, const StateFile& file,
                      const std::vector<std::string>& lines) {
  std::error_code error;
  fs::create_directories(folder, error);
  return ReplaceFile(PathOf(folder, file), TextOf(file, lines), 0600);
}

Result<std::vector<std::string>> ReadStateFile(const std::string& folder, const StateFile& file) {
  const std::string path = PathOf(folder, file);
  std::error_code error;
  if (folder.empty() || !fs::exists(path, error)) return std::vector<std::string>();
  ONNXD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
  if (const int format = FormatOf(text, file); format > file.format) {
    return FailedPrecondition(
        StrCat(path, " is of format ", format, ", and this onnxd knows ", file.format,
               ": a newer one wrote it; start that one, or move the file away and begin without"));
  }
  auto lines = LinesOf(text);
  if (lines.size() < 2) return DamagedStateFile(folder, file);
  lines.pop_back();
  lines.erase(lines.begin());
  if (TextOf(file, lines) != text) return DamagedStateFile(folder, file);
  return lines;
}

Status DamagedStateFile(const std::string& folder, const StateFile& file) {
  return Status(StatusCode::kDataLoss, StrCat(PathOf(folder, file), " is damaged"));
}

}  // namespace onnxd
