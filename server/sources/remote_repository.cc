#include "server/sources/remote_repository.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "runtime/base/exceptions.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "server/config/triton_config.h"
#include "server/models/version_policy.h"
#include "server/sources/download.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t kMostManifest = 64 << 20;
constexpr uint64_t kMostSettings = 64 << 10;

std::string NameOf(const PlacedObject& placed) {
  return placed.version.empty() ? StrCat(placed.model, "/", placed.file)
                                : StrCat(placed.model, "/", placed.version, "/", placed.file);
}

// A lock on a file, until it is gone; other processes have it or not.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~FileLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool Try() const { return descriptor_ >= 0 && flock(descriptor_, LOCK_EX | LOCK_NB) == 0; }

 private:
  const int descriptor_;
};

int64_t BytesBelow(const fs::path& folder) {
  std::error_code error;
  int64_t bytes = 0;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code none;
    if (it->is_regular_file(none)) bytes += static_cast<int64_t>(it->file_size(none));
  }
  return bytes;
}

// `from` in place of `to`, which there may be: in one step.
Status Replace(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::exists(to, error)) {
    fs::rename(from, to, error);
    return error ? Unavailable(StrCat("cannot rename ", from.string(), ": ", error.message()))
                 : Status::Ok();
  }
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    return Unavailable(StrCat("cannot exchange ", to.string()));
  }
  fs::remove_all(from, error);
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<RemoteRepository>> RemoteRepository::Open(
    const std::string& url, Options options, const std::atomic<bool>* stopping) {
  ONNXD_ASSIGN_OR_RETURN(SourceUrl parsed, ParseSourceUrl(url));
  std::unique_ptr<RemoteRepository> repository(
      new RemoteRepository(std::move(parsed), std::move(options), stopping));
  std::error_code error;
  for (const std::string& folder : {repository->models_, StrCat(repository->folder_, "/partial")}) {
    fs::create_directories(folder, error);
    if (error) return Unavailable(StrCat("cannot make ", folder, ": ", error.message()));
  }
  fs::permissions(repository->folder_, fs::perms::owner_all, error);
  const std::string used = StrCat(repository->folder_, "/used");
  repository->used_ = open(used.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (repository->used_ < 0 || flock(repository->used_, LOCK_SH) != 0) {
    return Unavailable(StrCat("cannot lock ", used));
  }
  repository->ReadManifest();
  return repository;
}

RemoteRepository::RemoteRepository(SourceUrl url, Options options,
                                   const std::atomic<bool>* stopping)
    : url_(std::move(url)),
      options_(std::move(options)),
      fetcher_(stopping),
      store_(NewObjectStore(url_, fetcher_)) {
  // The name is part of what is laid out there.
  const std::string key = Hex(Sha256(StrCat(url_.text, "\n", options_.model_name)));
  folder_ = StrCat(options_.cache_dir, "/", key.substr(0, 32));
  models_ = folder_ + "/models";
}

RemoteRepository::~RemoteRepository() {
  if (used_ >= 0) close(used_);
}

bool RemoteRepository::has_models() const { return !manifest_.empty(); }

Status RemoteRepository::Sync() {
  const FileLock lock(folder_ + "/lock");
  while (!lock.Try()) {
    if (fetcher_.cancelled()) return Cancelled("the server is stopping");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ReadManifest();  // another process may have changed it
  return CatchExceptions([this] { return Update(); }).WithContext(url_.shown);
}

Status RemoteRepository::Update() {
  ONNXD_ASSIGN_OR_RETURN(auto objects, store_->List());
  const auto read_mlmodel = [this](const RemoteObject& object) -> Result<std::string> {
    ONNXD_ASSIGN_OR_RETURN(const FetchRequest request, store_->Read(object, 0));
    ONNXD_ASSIGN_OR_RETURN(const auto response, fetcher_.Fetch(request));
    if (response.status != 200) return StatusOf(response, object.path);
    return response.body.substr(0, kMostSettings);
  };
  ONNXD_ASSIGN_OR_RETURN(const auto placed,
                         PlaceObjects(url_, std::move(objects), options_.model_name, read_mlmodel));
  std::map<std::string, Placed> models;
  for (const PlacedObject& object : placed) models[object.model].push_back(&object);
  Status failure;
  for (const auto& [model, of_model] : models) {
    Status updated = UpdateModel(model, of_model);
    if (updated.code() == StatusCode::kCancelled) return updated;
    if (!updated.ok() && failure.ok()) failure = updated.WithContext(StrCat("model '", model, "'"));
  }
  DropAbsent(placed);
  const Status written = WriteManifest();
  if (!failure.ok()) return failure;
  synced_ = true;
  std::error_code error;  // nobody goes on with what is left there
  for (const auto& file : fs::directory_iterator(folder_ + "/partial", error)) {
    fs::remove(file.path(), error);
  }
  return written;
}

Status RemoteRepository::UpdateModel(const std::string& model, const Placed& objects) {
  std::map<std::string, Placed> versions;
  for (const PlacedObject* placed : objects) {
    if (placed->version.empty()) {
      ONNXD_RETURN_IF_ERROR(UpdateFile(*placed));
    } else {
      versions[placed->version].push_back(placed);
    }
  }
  for (const int64_t number : WantedVersions(model, objects)) {
    const std::string version = StrCat(number);
    ONNXD_RETURN_IF_ERROR(
        UpdateVersion(model, version, versions[version]).WithContext(StrCat("version ", version)));
  }
  return Status::Ok();
}

// What the model's settings, which are here already, want of the versions there are; and what is
// here.
std::vector<int64_t> RemoteRepository::WantedVersions(const std::string& model,
                                                      const Placed& objects) const {
  ModelSettings settings;
  settings.versions = options_.versions;
  const std::string folder = StrCat(models_, "/", model);
  Status applied;
  if (const auto yaml = ReadFile(folder + "/model.yaml", kMostSettings); yaml.ok()) {
    applied = ApplyModelSettings(*yaml, "model.yaml", settings);
  } else if (const auto triton = ReadFile(folder + "/config.pbtxt", kMostSettings); triton.ok()) {
    applied = ApplyTritonConfig(*triton, "config.pbtxt", model, settings);
  }
  if (!applied.ok()) settings = ModelSettings();  // who serves it says what is wrong
  std::set<int64_t> numbers;
  for (const PlacedObject* placed : objects) {
    const bool counts = settings.ensemble.active() || placed->file == "model.onnx";
    if (!placed->version.empty() && counts) numbers.insert(std::stoll(placed->version));
  }
  const auto policy = ParseVersionPolicy(settings.versions);
  std::set<int64_t> wanted;
  if (policy.ok()) {
    const auto chosen = ChooseVersions({numbers.begin(), numbers.end()}, *policy);
    wanted.insert(chosen.begin(), chosen.end());
  }
  for (const std::string& named : settings.rollout.Versions()) {
    const int64_t number = std::atoll(settings.rollout.Resolve(named).c_str());
    if (numbers.contains(number)) wanted.insert(number);
  }
  std::error_code error;
  for (const int64_t number : numbers) {
    if (fs::exists(StrCat(folder, "/", number), error)) wanted.insert(number);
  }
  return {wanted.begin(), wanted.end()};
}

bool RemoteRepository::Has(const PlacedObject& placed) const {
  const auto entry = manifest_.find(NameOf(placed));
  if (entry == manifest_.end()) return false;
  // Whose revision nobody knows is read once by each process.
  if (placed.object.revision.empty() && !synced_) return false;
  std::error_code error;
  const auto size = fs::file_size(StrCat(models_, "/", NameOf(placed)), error);
  return !error && entry->second.revision == placed.object.revision &&
         entry->second.bytes == static_cast<int64_t>(size);
}

Status RemoteRepository::UpdateFile(const PlacedObject& placed) {
  if (Has(placed)) return Status::Ok();
  ONNXD_RETURN_IF_ERROR(MakeRoom(std::max<int64_t>(0, placed.object.bytes)));
  ONNXD_ASSIGN_OR_RETURN(const std::string file, Bring(placed.object));
  const fs::path to = fs::path(models_) / NameOf(placed);
  std::error_code error;
  const auto size = fs::file_size(file, error);
  fs::create_directories(to.parent_path(), error);
  fs::rename(file, to, error);
  if (error) return Unavailable(StrCat("cannot rename to ", to.string(), ": ", error.message()));
  manifest_[NameOf(placed)] = {placed.object.revision, static_cast<int64_t>(size)};
  return WriteManifest();
}

Status RemoteRepository::UpdateVersion(const std::string& model, const std::string& version,
                                       const Placed& objects) {
  const fs::path folder = fs::path(models_) / model / version;
  const std::string prefix = StrCat(model, "/", version, "/");
  size_t here = 0;
  for (auto it = manifest_.lower_bound(prefix); it != manifest_.end(); ++it) {
    if (!it->first.starts_with(prefix)) break;
    ++here;
  }
  int64_t lacking = 0;
  bool whole = here == objects.size();
  for (const PlacedObject* placed : objects) {
    if (Has(*placed)) continue;
    whole = false;
    lacking += std::max<int64_t>(0, placed->object.bytes);
  }
  if (whole) return Status::Ok();
  ONNXD_RETURN_IF_ERROR(MakeRoom(lacking));
  // All of them first: what came before one fails is not read again.
  std::map<std::string, std::string> brought;  // by file
  for (const PlacedObject* placed : objects) {
    if (Has(*placed)) continue;
    ONNXD_ASSIGN_OR_RETURN(brought[placed->file], Bring(placed->object));
  }
  const fs::path incoming = fs::path(models_) / model / StrCat(".incoming-", version);
  std::error_code error;
  fs::remove_all(incoming, error);
  fs::create_directories(incoming, error);
  Manifest entries;
  for (const PlacedObject* placed : objects) {
    const fs::path to = incoming / placed->file;
    if (const auto file = brought.find(placed->file); file != brought.end()) {
      fs::rename(file->second, to, error);
    } else {
      fs::create_hard_link(folder / placed->file, to, error);  // until the other name is gone
    }
    if (error) return Unavailable(StrCat("cannot make ", to.string(), ": ", error.message()));
    const auto size = fs::file_size(to, error);
    entries[NameOf(*placed)] = {placed->object.revision, static_cast<int64_t>(size)};
  }
  ONNXD_RETURN_IF_ERROR(Replace(incoming, folder));
  std::erase_if(manifest_, [&](const auto& entry) { return entry.first.starts_with(prefix); });
  manifest_.merge(entries);
  LogInfo(StrCat("model '", model, "' version ", version, " came from ", url_.shown));
  return WriteManifest();
}

// The file that has the object's bytes.
Result<std::string> RemoteRepository::Bring(const RemoteObject& object) {
  const std::string path = StrCat(
      folder_, "/partial/", Hex(Sha256(StrCat(object.url, "\n", object.revision))).substr(0, 32));
  ONNXD_RETURN_IF_ERROR(
      Download(*store_, object, fetcher_, path, options_.cache_bytes, options_.count_bytes)
          .WithContext(object.path));
  return path;
}

Status RemoteRepository::MakeRoom(int64_t bytes) {
  const auto is_too_much = [&] {
    return BytesBelow(options_.cache_dir) > options_.cache_bytes - bytes;
  };
  if (!is_too_much()) return Status::Ok();
  // What was changed longest ago first.
  std::vector<std::pair<fs::file_time_type, fs::path>> others;
  std::error_code error;
  for (fs::directory_iterator it(options_.cache_dir, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code none;
    if (it->path() == fs::path(folder_) || !fs::exists(it->path() / "used", none)) continue;
    others.emplace_back(fs::last_write_time(it->path() / "manifest", none), it->path());
  }
  std::sort(others.begin(), others.end());
  for (const auto& [changed, folder] : others) {
    const FileLock used((folder / "used").string());
    if (!used.Try()) continue;
    LogInfo(StrCat(folder.string(), " goes: others need the room (sources.cache_bytes)"));
    fs::remove_all(folder, error);
    if (!is_too_much()) return Status::Ok();
  }
  return ResourceExhausted(StrCat(bytes, " bytes more than the ", BytesBelow(options_.cache_dir),
                                  " that are in ", options_.cache_dir,
                                  " would pass sources.cache_bytes, ", options_.cache_bytes));
}

// Removes what the source does not have any more, and what is left of downloads that nobody wants.
void RemoteRepository::DropAbsent(const std::vector<PlacedObject>& placed) {
  std::set<std::string> names;
  for (const PlacedObject& object : placed) {
    names.insert(NameOf(object));
    names.insert(object.model);
    if (!object.version.empty()) names.insert(StrCat(object.model, "/", object.version));
  }
  std::error_code error;
  std::vector<fs::path> absent;
  for (fs::directory_iterator model(models_, error), end; !error && model != end;
       model.increment(error)) {
    const std::string name = model->path().filename().string();
    if (!names.contains(name)) {
      absent.push_back(model->path());
      continue;
    }
    std::error_code none;
    for (fs::directory_iterator below(model->path(), none); !none && below != end;
         below.increment(none)) {
      if (!names.contains(StrCat(name, "/", below->path().filename().string()))) {
        absent.push_back(below->path());
      }
    }
  }
  for (const fs::path& path : absent) fs::remove_all(path, error);
  std::erase_if(manifest_, [&](const auto& entry) { return !names.contains(entry.first); });
}

void RemoteRepository::ReadManifest() {
  manifest_.clear();
  const auto text = ReadFile(folder_ + "/manifest", kMostManifest);
  if (!text.ok()) return;
  const Json document = Json::parse(*text, nullptr, false);
  if (!document.is_object()) return;
  for (const auto& [name, entry] : document.items()) {
    if (!entry.is_object() || !entry.contains("revision") || !entry["revision"].is_string())
      continue;
    if (!entry.contains("bytes") || !entry["bytes"].is_number_integer()) continue;
    manifest_[name] = {entry["revision"].get<std::string>(), entry["bytes"].get<int64_t>()};
  }
}

Status RemoteRepository::WriteManifest() const {
  Json document = Json::object();
  for (const auto& [name, entry] : manifest_) {
    document[name] = {{"revision", entry.revision}, {"bytes", entry.bytes}};
  }
  return ReplaceFile(folder_ + "/manifest",
                     document.dump(1, ' ', false, Json::error_handler_t::replace), 0600);
}

}  // namespace onnxd
