#include "server/models/loaded_list.h"

#include "server/models/model_repository.h"
#include "server/models/state_file.h"

namespace onnxd {
namespace {

constexpr StateFile kFile{"loaded_models", "loaded models", "models"};

}  // namespace

Status WriteLoadedList(const std::string& folder, const std::set<std::string>& models) {
  return WriteStateFile(folder, kFile, {models.begin(), models.end()})
      .WithContext("a restart will not load what was loaded by request");
}

Result<std::set<std::string>> ReadLoadedList(const std::string& folder) {
  ONNXD_ASSIGN_OR_RETURN(const auto lines, ReadStateFile(folder, kFile));
  std::set<std::string> models(lines.begin(), lines.end());
  for (const std::string& model : models) {
    if (!IsModelName(model)) return DamagedStateFile(folder, kFile);
  }
  return models;
}

}  // namespace onnxd
