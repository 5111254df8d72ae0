#include "server/models/quarantine.h"

#include <algorithm>
#include <sstream>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "server/models/state_file.h"

namespace onnxd {
namespace {

constexpr StateFile kFile{"quarantine", "quarantine", "entries"};

// Words, then the reason, which is the only one to have spaces.
std::string LineOf(const QuarantineEntry& entry) {
  return StrCat(entry.model, " ", entry.version, " ", entry.contents, " ", entry.reason);
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
  std::vector<std::string> lines;
  for (const QuarantineEntry& entry : quarantine.entries()) lines.push_back(LineOf(entry));
  return WriteStateFile(folder, kFile, lines);
}

Result<Quarantine> ReadQuarantine(const std::string& folder) {
  ONNXD_ASSIGN_OR_RETURN(const auto lines, ReadStateFile(folder, kFile));
  Quarantine quarantine;
  for (const std::string& line : lines) {
    const QuarantineEntry entry = EntryOf(line);
    if (LineOf(entry) != line) return DamagedStateFile(folder, kFile);
    quarantine.Add(entry);
  }
  return quarantine;
}

}  // namespace onnxd
