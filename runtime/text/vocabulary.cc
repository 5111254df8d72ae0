#include "runtime/text/vocabulary.h"

#include "runtime/text/json_element.h"

namespace onnxd {

void Vocabulary::Set(std::string token, int64_t id) { ids_.insert_or_assign(std::move(token), id); }

std::optional<int64_t> Vocabulary::Find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::vector<std::pair<std::string_view, int32_t>> Vocabulary::Entries() const {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  entries.reserve(ids_.size());
  for (const auto& [token, id] : ids_) entries.emplace_back(token, static_cast<int32_t>(id));
  return entries;
}

Result<std::shared_ptr<Vocabulary>> ParseVocabularyJson(std::string_view json) {
  JsonObject document;
  ONNXD_RETURN_IF_ERROR(document.Parse(json, "the vocabulary"));
  return ParseVocabulary(document.root());
}

}  // namespace onnxd
