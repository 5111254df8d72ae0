#include "server/models/model_repository.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <tuple>

#include "runtime/base/file.h"
#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"
#include "server/config/mlflow_model.h"
#include "server/config/triton_config.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

// A positive decimal number without leading zeros.
std::optional<int64_t> VersionNumber(const std::string& name) {
  int64_t version = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), version);
  const bool whole = error == std::errc() && stop == name.data() + name.size();
  return whole && version > 0 && name[0] != '0' ? std::optional(version) : std::nullopt;
}

constexpr const char* kModelFile = "model.onnx";
constexpr const char* kSuffix = ".onnx";
constexpr const char* kSettingsFile = "model.yaml";
constexpr const char* kTritonFile = "config.pbtxt";
constexpr const char* kMlflowFile = "MLmodel";
constexpr uint64_t kMaxSettingsBytes = 64 << 10;
constexpr size_t kMostEntries = 100'000;  // looked at in one folder
constexpr size_t kMostFiles = 1000;       // of one version

uint64_t Mix(uint64_t hash, uint64_t number) {
  // The finalizer of splitmix64 (Steele, Lea and Flood, 2014).
  uint64_t z = hash ^ (number + 0x9e3779b97f4a7c15u + (hash << 6));
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void AddFile(const fs::path& path, WantedVersion& version) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return;
  uint64_t hash = Mix(static_cast<uint64_t>(status.st_size), static_cast<uint64_t>(status.st_ino));
  hash = Mix(hash, static_cast<uint64_t>(status.st_mtim.tv_sec));
  hash = Mix(hash, static_cast<uint64_t>(status.st_mtim.tv_nsec));
  // Whoever sets the time of the contents back does not set this one.
  hash = Mix(hash, static_cast<uint64_t>(status.st_ctim.tv_sec));
  hash = Mix(hash, static_cast<uint64_t>(status.st_ctim.tv_nsec));
  // A sum: files come in any order.
  version.fingerprint += Mix(hash, std::hash<std::string>{}(path.filename().string()));
  version.changed = std::max<int64_t>(version.changed, status.st_mtim.tv_sec);
  if (S_ISREG(status.st_mode)) version.bytes += status.st_size;
}

// A model in a folder of its own shares it with its data; a single file may stand anywhere. In any
// order.
std::vector<fs::path> FilesOf(const std::string& model_path) {
  const fs::path path(model_path);
  if (path.filename() != kModelFile) return {path};
  const auto names = ListFolder(path.parent_path().string(), kMostFiles);
  if (!names.ok()) return {path};
  std::vector<fs::path> files;
  for (const std::string& name : *names) files.push_back(path.parent_path() / name);
  return files;
}

void AddFiles(WantedVersion& version) {
  for (const fs::path& file : FilesOf(version.path)) AddFile(file, version);
}

uint64_t HashOf(const ModelSettings& settings) {
  uint64_t hash = settings.batch_size_given;
  for (const auto& key : ModelSettingsKeys()) {
    hash = Mix(hash, std::hash<std::string>{}(key.get(settings)));
  }
  return Mix(hash, std::hash<std::string>{}(DescribeRecords(settings)));
}

int64_t TimeOf(const fs::path& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_mtim.tv_sec : 0;
}

// What says how the model is served: its model.yaml, else a config.pbtxt, else nothing.
fs::path SettingsFileOf(const fs::path& folder) {
  std::error_code error;
  const bool is_triton =
      !fs::exists(folder / kSettingsFile, error) && fs::exists(folder / kTritonFile, error);
  return folder / (is_triton ? kTritonFile : kSettingsFile);
}

Status ApplySettings(const fs::path& file, const std::string& model, ModelSettings& settings) {
  ONNXD_ASSIGN_OR_RETURN(const std::string text, ReadFile(file.string(), kMaxSettingsBytes));
  if (file.filename() == kTritonFile) {
    ONNXD_RETURN_IF_ERROR(ApplyTritonConfig(text, file.string(), model, settings));
  } else {
    ONNXD_RETURN_IF_ERROR(ApplyModelSettings(text, file.string(), settings));
    std::error_code error;
    if (fs::exists(file.parent_path() / kTritonFile, error)) settings.ignored = kTritonFile;
  }
  return ParseVersionPolicy(settings.versions).status().WithContext(file.string());
}

// The defaults with what the model's own file says; the fault is that of the file.
std::pair<ModelSettings, Status> SettingsOf(const fs::path& file, const std::string& model,
                                            const RepositoryOptions& options) {
  const ModelSettings& defaults = options.defaults;
  const auto config = options.configs.find(model);
  std::error_code error;
  if (config == options.configs.end() && !fs::exists(file, error)) return {defaults, Status::Ok()};
  ModelSettings settings = defaults;
  Status fault = fs::exists(file, error) ? ApplySettings(file, model, settings) : Status::Ok();
  if (config != options.configs.end()) {
    const RolloutSettings rollout = settings.rollout;
    settings = defaults;
    if (fault.ok()) settings.rollout = rollout;
    fault = ApplyTritonConfigJson(config->second, model, settings);
    if (fault.ok()) fault = ParseVersionPolicy(settings.versions).status();
  }
  if (fault.ok()) return {std::move(settings), std::move(fault)};
  settings = defaults;
  settings.batching.mode = StrCat("faulty: ", fault.message());  // another fault, another try
  return {std::move(settings), std::move(fault)};
}

// What labels and shares name serves, whatever the policy.
void AddNamed(const RolloutSettings& rollout, const std::vector<int64_t>& available,
              std::vector<int64_t>& chosen) {
  std::set<int64_t> all(chosen.begin(), chosen.end());
  for (const std::string& version : rollout.Versions()) {
    const int64_t number = VersionNumber(version).value_or(0);
    if (std::find(available.begin(), available.end(), number) != available.end()) {
      all.insert(number);
    }
  }
  chosen.assign(all.begin(), all.end());
}

RolloutSettings RolloutOf(const std::string& model, const ModelSettings& settings,
                          const RolloutOverlays& overlays) {
  const auto overlay = overlays.find(model);
  return overlay == overlays.end() ? settings.rollout : Over(settings.rollout, overlay->second);
}

// Those of the numbers that the settings want and that are not withheld.
std::vector<int64_t> ChosenOf(const ModelSettings& settings, std::vector<int64_t> numbers,
                              const std::function<bool(int64_t)>& is_withheld) {
  const auto policy = ParseVersionPolicy(settings.versions);
  for (;;) {
    std::vector<int64_t> chosen = ChooseVersions(numbers, *policy);
    AddNamed(settings.rollout, numbers, chosen);
    const auto withheld = std::find_if(chosen.begin(), chosen.end(), is_withheld);
    if (withheld == chosen.end()) return chosen;
    std::erase(numbers, *withheld);
  }
}

// Of folders with a model, or of all for an ensemble.
std::vector<int64_t> NumbersOf(const fs::path& folder, const std::vector<std::string>& names,
                               bool is_ensemble, const RepositoryOptions& options) {
  std::vector<int64_t> numbers;
  for (const std::string& name : names) {
    const auto number = VersionNumber(name);
    std::error_code none;
    const bool has_model = fs::is_regular_file(folder / name / kModelFile, none);
    const bool counts = is_ensemble ? fs::is_directory(folder / name, none) : has_model;
    if (number && counts) {
      numbers.push_back(*number);
    } else if (!number && has_model && name[0] != '.' && options.note_ignored) {
      options.note_ignored((folder / name).string());
    }
  }
  return numbers;
}

Status AddVersions(const fs::path& folder, const std::string& model,
                   const RepositoryOptions& options, std::vector<WantedVersion>& wanted) {
  const auto names = ListFolder(folder.string(), kMostEntries);
  if (names.status().code() == StatusCode::kNotFound) return Status::Ok();  // gone meanwhile
  ONNXD_RETURN_IF_ERROR(names.status());
  ModelSettings settings;
  Status fault;
  const fs::path settings_file = SettingsFileOf(folder);
  std::tie(settings, fault) = SettingsOf(settings_file, model, options);
  const bool is_ensemble = settings.ensemble.active();
  std::vector<int64_t> numbers = NumbersOf(folder, *names, is_ensemble, options);
  if (numbers.empty() && (is_ensemble || !fault.ok())) numbers = {1};
  settings.rollout = RolloutOf(model, settings, options.rollouts);
  const auto version_of = [&](int64_t number) {
    WantedVersion version;
    version.model = model;
    version.version = std::to_string(number);
    const fs::path file = folder / version.version / kModelFile;
    std::error_code none;
    version.path = (is_ensemble || !fs::exists(file, none) ? settings_file : file).string();
    version.settings = settings;
    version.fault = fault;
    version.fingerprint = HashOf(settings);
    AddFiles(version);
    version.changed = std::max(version.changed, TimeOf(settings_file));
    return version;
  };
  for (const int64_t number : ChosenOf(settings, std::move(numbers), [&](int64_t candidate) {
         return options.is_withheld && options.is_withheld(version_of(candidate));
       })) {
    wanted.push_back(version_of(number));
  }
  return Status::Ok();
}

Status AddFolder(const std::string& path, const RepositoryOptions& options,
                 std::vector<WantedVersion>& wanted) {
  ONNXD_ASSIGN_OR_RETURN(const auto names, ListFolder(path, kMostEntries));
  for (const std::string& name : names) {
    const fs::path folder = fs::path(path) / name;
    std::error_code none;
    if (!IsModelName(name) || !fs::is_directory(folder, none)) continue;
    ONNXD_RETURN_IF_ERROR(AddVersions(folder, name, options, wanted));
  }
  return Status::Ok();
}

// The folder, of FOLDER/NAME/VERSION/model.onnx and of FOLDER/NAME/model.yaml or config.pbtxt.
std::string FolderOf(const WantedVersion& version) {
  fs::path folder = fs::path(version.path).parent_path();
  if (fs::path(version.path).filename() == kModelFile) folder = folder.parent_path();
  return folder.parent_path().string();
}

Status RefuseSharedNames(const std::vector<WantedVersion>& wanted) {
  for (size_t i = 1; i < wanted.size(); ++i) {
    if (wanted[i].model != wanted[i - 1].model) continue;
    if (FolderOf(wanted[i]) == FolderOf(wanted[i - 1])) continue;
    return InvalidArgument(StrCat("model '", wanted[i].model, "' stands in two repositories: ",
                                  FolderOf(wanted[i - 1]), " and ", FolderOf(wanted[i])));
  }
  return Status::Ok();
}

// Mixes into an ensemble's fingerprint those of its models, and puts it behind them. Ensembles that
// need each other come last, as they are.
void OrderEnsembles(std::vector<WantedVersion>& wanted) {
  const auto begin = std::stable_partition(
      wanted.begin(), wanted.end(),
      [](const WantedVersion& version) { return !version.settings.ensemble.active(); });
  std::set<std::string> waiting;  // ensembles
  for (auto it = begin; it != wanted.end(); ++it) waiting.insert(it->model);
  for (auto next = begin; next != wanted.end();) {
    const auto ready = std::stable_partition(next, wanted.end(), [&](const WantedVersion& version) {
      const auto& steps = version.settings.ensemble.steps;
      return std::none_of(steps.begin(), steps.end(),
                          [&](const EnsembleStep& step) { return waiting.contains(step.model); });
    });
    if (ready == next) return;
    for (auto it = next; it != ready; ++it) {
      for (const EnsembleStep& step : it->settings.ensemble.steps) {
        for (auto member = wanted.begin(); member != next; ++member) {
          if (member->model == step.model) it->needs = Mix(it->needs, member->fingerprint);
        }
      }
      it->fingerprint += it->needs;
    }
    for (auto it = next; it != ready; ++it) waiting.erase(it->model);
    next = ready;
  }
}

Result<std::string> NameOfOne(const RepositoryOptions& options, const fs::path& otherwise) {
  std::string name = options.model_name.empty() ? otherwise.string() : options.model_name;
  if (!IsModelName(name)) return InvalidArgument(StrCat("'", name, "' cannot name a model"));
  return name;
}

// Version 1 of a model; `settings` as SettingsOf gives them.
std::vector<WantedVersion> SingleFile(const std::string& path, std::string model,
                                      std::pair<ModelSettings, Status> settings,
                                      const RolloutOverlays& rollouts) {
  WantedVersion version;
  version.model = std::move(model);
  version.version = "1";
  version.path = path;
  std::tie(version.settings, version.fault) = std::move(settings);
  if (version.fault.ok() && version.settings.ensemble.active()) {
    version.fault = InvalidArgument(StrCat("an ensemble has no model of its own: ", path));
    version.settings.ensemble = {};
  }
  version.settings.rollout = RolloutOf(version.model, version.settings, rollouts);
  version.fingerprint = HashOf(version.settings);
  AddFiles(version);
  return {std::move(version)};
}

// Of a folder that is one model; empty: it is none. What MLflow saved, model.onnx, the only file
// like it, or, as on the Hugging Face hub, onnx/model.onnx.
Result<std::string> OnlyFileOf(const fs::path& folder, const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const std::string& name : names) {
    std::error_code none;
    if (!fs::is_regular_file(folder / name, none)) continue;
    if (name == kMlflowFile) {
      const std::string description = (folder / name).string();
      ONNXD_ASSIGN_OR_RETURN(const std::string text, ReadFile(description, kMaxSettingsBytes));
      return OnnxFileOf(text, description);
    }
    if (name[0] != '.' && fs::path(name).extension() == kSuffix) files.push_back(name);
  }
  if (std::find(files.begin(), files.end(), kModelFile) != files.end()) {
    return std::string(kModelFile);
  }
  if (files.size() == 1) return files[0];
  const fs::path of_hub = fs::path("onnx") / kModelFile;
  std::error_code none;
  return files.empty() && fs::is_regular_file(folder / of_hub, none) ? of_hub.string()
                                                                     : std::string();
}

// The versions of a folder that is one model, none if it is not. Asked only where no models are in
// it, so that a file that strays into a repository changes nothing.
Result<std::vector<WantedVersion>> OneModel(const fs::path& folder,
                                            const RepositoryOptions& options) {
  ONNXD_ASSIGN_OR_RETURN(const auto names, ListFolder(folder.string(), kMostEntries));
  ONNXD_ASSIGN_OR_RETURN(const std::string file, OnlyFileOf(folder, names));
  std::error_code none;
  const bool has_versions = std::any_of(names.begin(), names.end(), [&](const auto& name) {
    return VersionNumber(name) && fs::is_regular_file(folder / name / kModelFile, none);
  });
  if (file.empty() && !has_versions) return std::vector<WantedVersion>();
  const fs::path named = folder.has_filename() ? folder : folder.parent_path();
  ONNXD_ASSIGN_OR_RETURN(std::string model, NameOfOne(options, named.filename()));
  if (!file.empty()) {
    const fs::path settings_file = SettingsFileOf(folder);
    auto settings = SettingsOf(settings_file, model, options);
    auto wanted = SingleFile((folder / file).string(), std::move(model), std::move(settings),
                             options.rollouts);
    wanted[0].changed = std::max(wanted[0].changed, TimeOf(settings_file));
    return wanted;
  }
  std::vector<WantedVersion> wanted;
  ONNXD_RETURN_IF_ERROR(AddVersions(folder, model, options, wanted));
  return wanted;
}

}  // namespace

uint64_t FingerprintOf(const WantedVersion& version) {
  WantedVersion now;
  now.path = version.path;
  now.fingerprint = HashOf(version.settings) + version.needs;
  AddFiles(now);
  return now.fingerprint;
}

Result<ContentHash> HashContents(const WantedVersion& version) {
  std::vector<fs::path> files = FilesOf(version.path);
  std::sort(files.begin(), files.end());
  std::string hashes;
  for (const fs::path& file : files) {
    std::error_code none;
    if (!fs::is_regular_file(file, none)) continue;
    ONNXD_ASSIGN_OR_RETURN(const auto source, OpenFile(file.string()));
    ONNXD_ASSIGN_OR_RETURN(const ContentHash hash, HashSource(*source));
    hashes += StrCat(file.filename().string(), '/', hash.Hex(), '\n');
  }
  return HashBytes(hashes);
}

RepositoryOptions RepositoryOptionsOf(const ServerOptions& options) {
  const std::string& named = options.models.repository;
  std::error_code error;
  auto paths = fs::exists(named, error) ? std::vector{named} : SplitList(named, ',');
  return {std::move(paths), options.models.model_name, DefaultSettings(options), {}, {}, {}, {}};
}

bool IsModelName(const std::string& name) {
  return !name.empty() && name.size() <= 128 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c > 0x20 && c != 0x7f && c != '/' && c != '\\' && c != '%';
         });
}

Result<std::vector<WantedVersion>> ScanRepository(const RepositoryOptions& options) {
  if (const auto policy = ParseVersionPolicy(options.defaults.versions); !policy.ok()) {
    return policy.status().WithContext("models.versions");
  }
  std::vector<WantedVersion> wanted;
  for (const std::string& path : options.paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
      if (error == std::errc::permission_denied) {
        return Unavailable(StrCat("cannot read ", path, ": ", error.message()));
      }
      return NotFound(StrCat("no such model or repository: ", path));
    }
    if (fs::is_regular_file(status)) {
      if (options.paths.size() == 1) {
        ONNXD_ASSIGN_OR_RETURN(std::string model, NameOfOne(options, fs::path(path).stem()));
        return SingleFile(path, std::move(model), {options.defaults, Status::Ok()},
                          options.rollouts);
      }
      return InvalidArgument(StrCat(path, " is a file: one file, or several folders, are served"));
    }
    if (!fs::is_directory(status)) {
      return InvalidArgument(StrCat(path, " is neither a model file nor a folder"));
    }
    ONNXD_RETURN_IF_ERROR(AddFolder(path, options, wanted));
    if (options.paths.size() > 1 || !wanted.empty()) continue;
    ONNXD_ASSIGN_OR_RETURN(wanted, OneModel(path, options));
  }
  std::stable_sort(
      wanted.begin(), wanted.end(),
      [](const WantedVersion& a, const WantedVersion& b) { return a.model < b.model; });
  ONNXD_RETURN_IF_ERROR(RefuseSharedNames(wanted));
  OrderEnsembles(wanted);
  return wanted;
}

}  // namespace onnxd
