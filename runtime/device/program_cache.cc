#include "runtime/device/program_cache.h"

#include <cstring>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr uint64_t kMostBytes = 256 << 20;  // of a program

}  // namespace

std::string ProgramCache::NameOf(std::string_view compiler, std::string_view text) const {
  return StrCat(HashBytes(StrCat(compiler, "\n", text), folder_->secret()).Hex(), ".kernel");
}

// A file is the hash of what follows.
std::optional<std::string> ProgramCache::Find(std::string_view compiler, std::string_view text) {
  const std::string name = NameOf(compiler, text);
  auto bytes = ReadFile(folder_->PathOf(name), kMostBytes);
  if (!bytes.ok()) return std::nullopt;
  ContentHash hash;
  if (bytes->size() > sizeof(hash)) {
    std::memcpy(&hash, bytes->data(), sizeof(hash));
    bytes->erase(0, sizeof(hash));
    if (HashBytes(*bytes, folder_->secret()) == hash) {
      ++found_;
      folder_->Touch(name);
      return std::move(*bytes);
    }
  }
  LogWarning(StrCat("the compiled kernel ", folder_->PathOf(name), " is damaged and removed"));
  folder_->Remove(name);
  return std::nullopt;
}

void ProgramCache::Store(std::string_view compiler, std::string_view text,
                         std::string_view binary) {
  ++compiled_;
  const std::string name = NameOf(compiler, text);
  const ContentHash hash = HashBytes(binary, folder_->secret());
  std::string bytes(sizeof(hash), '\0');
  std::memcpy(bytes.data(), &hash, sizeof(hash));
  bytes += binary;
  const Status stored =
      folder_->Write(name, [&](const std::string& aside) { return WriteFile(aside, bytes); });
  if (!stored.ok()) return LogWarning(stored.ToString());
  folder_->Evict(name);
}

}  // namespace onnxd
