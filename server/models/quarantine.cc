#include "server/models/quarantine.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "quarantine";
constexpr const char* kFirstLine = "onnxd quarantine 1";
constexpr uint64_t kMostBytes = 16 << 20;

// A line each: words, then the reason, which is the only one to have spaces.
std::string TextOf(const std::vector<QuarantineEntry>& entries) {
  std::string text = StrCat(kFirstLine, "\n");
  for (const auto& entry : entries) {
    text += StrCat(entry.model, " ", entry.version, " ", entry.contents, " ", entry.reason, "\n");
  }
  return StrCat(text, entries.size(), " entries\n");  // whole, if it ends so
}

QuarantineEntry EntryOf(const std::string& line) {
  std::istringstream words(line);
  QuarantineEntry entry;
  words >> entry.model >> entry.version >> entry.contents;
  std::getline(words.ignore(1), entry.reason);
  return entry;
}

}  // namespace

void Quarantine::Add(QuarantineEntry entry) {
  std::erase_if(entries_, [&](const QuarantineEntry& other) {
    return other.model == entry.model && other.version == entry.version &&
           other.contents == entry.contents;
  });
  entries_.push_back(std::move(entry));
}

bool Quarantine::Release(const std::string& model, const std::string& version) {
  return std::erase_if(entries_, [&](const QuarantineEntry& entry) {
           return entry.model == model && entry.version == version;
         }) > 0;
}

std::optional<std::string> Quarantine::ContentsOf(const WantedVersion& version) {
  const uint64_t fingerprint = FingerprintOf(version);
  const auto known = known_.find(version.path);
  if (known != known_.end() && known->second.fingerprint == fingerprint) {
    return known->second.contents;
  }
  const auto hash = HashContents(version);
  if (!hash.ok()) {
    LogWarning(hash.status().ToString());
    return std::nullopt;
  }
  known_[version.path] = {fingerprint, hash->Hex()};
  return hash->Hex();
}

std::optional<std::string> Quarantine::Holds(const WantedVersion& version) {
  const bool watched =
      std::any_of(entries_.begin(), entries_.end(),
                  [&](const QuarantineEntry& entry) { return entry.model == version.model; });
  if (!watched) return std::nullopt;
  const auto contents = ContentsOf(version);
  for (const QuarantineEntry& entry : entries_) {
    if (entry.model != version.model || entry.contents != contents) continue;
    if (entry.version == version.version) return entry.reason;
    return StrCat("its files are those of version ", entry.version, ": ", entry.reason);
  }
  return std::nullopt;
}

Status WriteQuarantine(const std::string& folder, const Quarantine& quarantine) {
  std::error_code error;
  fs::create_directories(folder, error);
  return ReplaceFile((fs::path(folder) / kFile).string(), TextOf(quarantine.entries()), 0600);
}

Result<Quarantine> ReadQuarantine(const std::string& folder) {
  const std::string path = (fs::path(folder) / kFile).string();
  std::error_code error;
  Quarantine quarantine;
  if (folder.empty() || !fs::exists(path, error)) return quarantine;
  ONNXD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
  const auto lines = SplitList(text, '\n');
  for (size_t i = 1; i + 1 < lines.size(); ++i) quarantine.Add(EntryOf(lines[i]));
  if (TextOf(quarantine.entries()) == text) return quarantine;
  return Status(StatusCode::kDataLoss, StrCat(path, " is damaged"));
}

}  // namespace onnxd
