#include "server/models/resident_models.h"

#include <algorithm>
#include <thread>

#include "runtime/base/log.h"
#include "runtime/base/machine.h"
#include "runtime/base/str_cat.h"
#include "server/generation/generator.h"

namespace onnxd {
namespace {

using Clock = std::chrono::steady_clock;

VersionKey KeyOf(const ModelVersion& version) { return {version.model, version.version}; }

// The same version without its session.
std::shared_ptr<const ModelVersion> WithoutSession(const ModelVersion& version) {
  auto empty = std::make_shared<ModelVersion>();
  empty->model = version.model;
  empty->version = version.version;
  empty->settings = version.settings;
  empty->inputs = version.inputs;
  empty->sequence = version.sequence;
  empty->padding = version.padding;
  empty->takes_texts = version.takes_texts;
  empty->writes_texts = version.writes_texts;
  empty->outputs = version.outputs;
  empty->metrics = version.metrics;
  empty->rollout = version.rollout;
  empty->evicted = true;
  empty->last_used = version.last_used.load();
  const std::string why_alone = version.why_alone();
  if (version.joins_rows() || !why_alone.empty()) empty->SetTrial(why_alone);
  return empty;
}

}  // namespace

ResidentModels::ResidentModels(ModelRegistry& registry, Scheduler& scheduler,
                               ServerMetrics& metrics, std::shared_ptr<MemoryAccount> memory)
    : registry_(registry), scheduler_(scheduler), metrics_(metrics), memory_(std::move(memory)) {}

std::vector<ResidentVersion> ResidentModels::Candidates(const std::string& own) const {
  const auto now = Clock::now();
  std::vector<ResidentVersion> candidates;
  const auto add = [&](const ModelVersion& version, bool kept) {
    ResidentVersion candidate;
    candidate.key = KeyOf(version);
    candidate.bytes = version.memory->bytes();
    candidate.kept = kept;
    candidate.pinned = version.settings.pinned || version.ensemble != nullptr;
    candidate.busy = !scheduler_.IsIdle(*version.scheduled) ||
                     (version.generator != nullptr && version.generator->is_busy());
    candidate.resident = now - version.loaded;
    candidate.unused = now - version.last_used.load();
    candidates.push_back(std::move(candidate));
  };
  for (const auto& [model, kept] : kept_) add(*kept.version, true);
  const auto models = registry_.Snapshot();
  for (const auto& [model, versions] : *models) {
    if (model == own) continue;
    for (const auto& [number, version] : versions) {
      if (!version->evicted) add(*version, false);
    }
  }
  return candidates;
}

Status ResidentModels::Reserve(MemoryAccount& account, int64_t bytes, const std::string& own) {
  if (account.Reserve(bytes)) return Status::Ok();
  if (EvictFor(bytes, own) && account.Reserve(bytes)) return Status::Ok();
  const int64_t most = memory_->limit();
  return ResourceExhausted(StrCat("it needs about ", bytes, " bytes; ", memory_->bytes(), " of ",
                                  most, " (limits.memory_bytes) are in use"));
}

bool ResidentModels::EvictFor(int64_t bytes, const std::string& own) {
  const int64_t free = memory_->limit() - memory_->bytes();
  const auto chosen = ChooseEvictions(Candidates(own), bytes - free, least_resident_);
  if (!chosen) return false;
  for (const VersionKey& key : *chosen) Evict(key);
  DropRetired();
  return true;
}

void ResidentModels::Relieve() {
  const int64_t tenth = memory_->limit() / 10;
  if (EvictFor(tenth, "")) return;
  // Not all of that can be had: at least what nobody would miss.
  while (!kept_.empty()) Evict(KeyOf(*kept_.begin()->second.version));
  DropRetired();
}

void ResidentModels::Evict(const VersionKey& key) {
  const auto kept = kept_.find(key.first);
  if (kept != kept_.end() && kept->second.version->version == key.second) {
    LogInfo(StrCat("model '", key.first, "' version ", key.second,
                   " is not kept for a return to it any more: memory is needed"));
    Retire(std::move(kept->second.version));
    kept_.erase(kept);
    return;
  }
  const auto models = registry_.Snapshot();
  const auto& version = models->at(key.first).at(key.second);
  LogInfo(StrCat("model '", key.first, "' version ", key.second,
                 " leaves the memory until it is asked for: others need it"));
  metrics_.CountEviction(key.first);
  Retire(registry_.Publish(WithoutSession(*version)));
}

void ResidentModels::Publish(Version version, uint64_t fingerprint) {
  const VersionKey key = KeyOf(*version);
  fingerprints_[key] = fingerprint;
  Retire(registry_.Publish(std::move(version)));
}

bool ResidentModels::PublishKept(const VersionKey& key, uint64_t fingerprint) {
  const auto kept = kept_.find(key.first);
  if (kept == kept_.end() || kept->second.version->version != key.second ||
      kept->second.fingerprint != fingerprint) {
    return false;
  }
  Version version = std::move(kept->second.version);
  kept_.erase(kept);
  LogInfo(StrCat("model '", key.first, "' version ", key.second, " serves again, from memory"));
  Publish(std::move(version), fingerprint);
  return true;
}

void ResidentModels::Unload(const VersionKey& key, bool keep) {
  Version removed = registry_.Remove(key.first, key.second);
  if (removed == nullptr) return;
  LogInfo(StrCat("model '", key.first, "' version ", key.second, " is not served any more"));
  const auto fingerprint = fingerprints_.extract(key);
  if (keep && !removed->evicted && !fingerprint.empty()) {
    auto& place = kept_[key.first];
    Retire(std::exchange(place.version, std::move(removed)));
    place.fingerprint = fingerprint.mapped();
    return;
  }
  Retire(std::move(removed));
}

void ResidentModels::UnloadAndWait(const std::vector<VersionKey>& keys,
                                   std::chrono::milliseconds most) {
  for (const VersionKey& key : keys) Unload(key, false);
  const auto end = Clock::now() + most;
  const auto lasts = [&](const Version& version) {
    return std::find(keys.begin(), keys.end(), KeyOf(*version)) != keys.end();
  };
  for (DropRetired(); Clock::now() < end; DropRetired()) {
    if (std::none_of(retired_.begin(), retired_.end(), lasts)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool ResidentModels::IsEvicted(const VersionKey& key) const {
  const auto found = registry_.Find(key.first, key.second);
  return found.ok() && (*found)->evicted;
}

std::vector<VersionKey> ResidentModels::Evicted(const std::string& model) const {
  std::vector<VersionKey> evicted;
  const auto models = registry_.Snapshot();
  const auto found = models->find(model);
  if (found == models->end()) return evicted;
  for (const auto& [number, version] : found->second) {
    if (version->evicted) evicted.emplace_back(model, number);
  }
  return evicted;
}

void ResidentModels::Retire(Version version) {
  if (version != nullptr) retired_.push_back(std::move(version));
}

void ResidentModels::DropRetired() {
  const size_t freed =
      std::erase_if(retired_, [](const Version& version) { return version.use_count() == 1; });
  if (freed > 0) ReturnFreedMemory();
}

}  // namespace onnxd
