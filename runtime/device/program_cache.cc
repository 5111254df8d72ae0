#include "runtime/device/program_cache.h"

#include <cstring>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr uint64_t kMostBytes = 256 << 20;  // of a program

}  // namespace

std::string ProgramCache::NameOf(std::string_view maker, std::string_view text,
                                 std::string_view kind) const {
  return StrCat(HashBytes(StrCat(maker, "\n", text), folder_->secret()).Hex(), kind);
}

// A file is the hash of what follows.
std::optional<std::string> ProgramCache::Read(const std::string& name) {
  auto bytes = ReadFile(folder_->PathOf(name), kMostBytes);
  if (!bytes.ok()) return std::nullopt;
  ContentHash hash;
  if (bytes->size() > sizeof(hash)) {
    std::memcpy(&hash, bytes->data(), sizeof(hash));
    bytes->erase(0, sizeof(hash));
    if (HashBytes(*bytes, folder_->secret()) == hash) {
      folder_->Touch(name);
      return std::move(*bytes);
    }
  }
  LogWarning(StrCat("the kept file ", folder_->PathOf(name), " is damaged and removed"));
  folder_->Remove(name);
  return std::nullopt;
}

void ProgramCache::Write(const std::string& name, std::string_view content) {
  const ContentHash hash = HashBytes(content, folder_->secret());
  std::string bytes(sizeof(hash), '\0');
  std::memcpy(bytes.data(), &hash, sizeof(hash));
  bytes += content;
  const Status stored =
      folder_->Write(name, [&](const std::string& aside) { return WriteFile(aside, bytes); });
  if (!stored.ok()) return LogWarning(stored.ToString());
  folder_->Evict(name);
}

std::optional<std::string> ProgramCache::Find(std::string_view compiler, std::string_view text) {
  auto binary = Read(NameOf(compiler, text, ".kernel"));
  if (binary) ++found_;
  return binary;
}

void ProgramCache::Store(std::string_view compiler, std::string_view text,
                         std::string_view binary) {
  ++compiled_;
  Write(NameOf(compiler, text, ".kernel"), binary);
}

std::optional<std::string> ProgramCache::FindFastest(std::string_view device,
                                                     std::string_view question) {
  return Read(NameOf(device, question, ".fastest"));
}

void ProgramCache::StoreFastest(std::string_view device, std::string_view question,
                                std::string_view answer) {
  Write(NameOf(device, question, ".fastest"), answer);
}

}  // namespace onnxd
