#include "server/sources/repository_layout.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"
#include "server/config/mlflow_model.h"
#include "server/models/model_repository.h"

namespace onnxd {
namespace {

constexpr const char* kModelFile = "model.onnx";
constexpr const char* kSuffix = ".onnx";

// A file's name that leads nowhere else and is not hidden.
bool IsPlain(const std::string& name) {
  return !name.empty() && name.size() <= 200 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c >= 0x20 && c != 0x7f && c != '/' && c != '\\';
         });
}

bool IsVersion(const std::string& text) {
  return !text.empty() && text.size() <= 18 && text[0] != '0' &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> PartsOf(const std::string& path) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', begin)) {
    parts.push_back(path.substr(begin, slash - begin));
    begin = slash + 1;
  }
  parts.push_back(path.substr(begin));
  return parts;
}

// The stem of what the URL, or the chosen file, ends with.
std::string NameOf(const SourceUrl& url, const std::string& file) {
  const std::string stem = std::filesystem::path(file).stem().string();
  if (url.kind == SourceUrl::Kind::kHuggingFace && stem == "model") {
    return url.bucket.substr(url.bucket.find('/') + 1);
  }
  return stem;
}

// All files as version 1 of one model, of which one is the graph.
Result<std::vector<PlacedObject>> Single(std::vector<RemoteObject> objects, const std::string& name,
                                         const std::string& graph) {
  if (!IsModelName(name)) return InvalidArgument(StrCat("'", name, "' cannot name a model"));
  std::vector<PlacedObject> placed;
  bool found = false;
  for (RemoteObject& object : objects) {
    const std::string file = object.path == graph ? kModelFile : object.path;
    found |= object.path == graph;
    if (IsPlain(file)) placed.push_back({name, "1", file, std::move(object)});
  }
  if (!found) return NotFound(StrCat("there is no ", graph));
  return placed;
}

}  // namespace

Result<std::vector<PlacedObject>> PlaceObjects(
    const SourceUrl& url, std::vector<RemoteObject> objects, const std::string& name,
    const std::function<Result<std::string>(const RemoteObject&)>& read_mlmodel) {
  if (objects.empty()) return NotFound(StrCat(url.shown, ": there is nothing"));
  const auto has = [&](const std::string& path) {
    return std::find_if(objects.begin(), objects.end(),
                        [&](const RemoteObject& object) { return object.path == path; });
  };
  const std::string last = url.path.substr(url.path.rfind('/') + 1);
  const bool one_file = url.kind == SourceUrl::Kind::kHttp ||
                        url.kind == SourceUrl::Kind::kHuggingFace || last.ends_with(".onnx");
  if (one_file) {
    // Of data beside it its own name is the begin; other files have another suffix.
    const auto graph_first = std::min_element(
        objects.begin(), objects.end(), [](const RemoteObject& a, const RemoteObject& b) {
          return std::make_pair(!a.path.ends_with(kSuffix), a.path.size()) <
                 std::make_pair(!b.path.ends_with(kSuffix), b.path.size());
        });
    const std::string graph = graph_first->path;
    return Single(std::move(objects), name.empty() ? NameOf(url, graph) : name, graph);
  }
  if (const auto description = has("MLmodel"); description != objects.end()) {
    ONNXD_ASSIGN_OR_RETURN(const std::string text, read_mlmodel(*description));
    ONNXD_ASSIGN_OR_RETURN(const std::string graph, OnnxFileOf(text, "MLmodel"));
    return Single(std::move(objects), name.empty() ? last : name, graph);
  }
  std::vector<PlacedObject> placed;
  for (RemoteObject& object : objects) {
    const auto parts = PartsOf(object.path);
    if (!IsModelName(parts[0]) || !IsPlain(parts.back())) continue;
    if (parts.size() == 2 && (parts[1] == "model.yaml" || parts[1] == "config.pbtxt")) {
      placed.push_back({parts[0], "", parts[1], std::move(object)});
    } else if (parts.size() == 3 && IsVersion(parts[1])) {
      placed.push_back({parts[0], parts[1], parts[2], std::move(object)});
    }
  }
  if (placed.empty()) {
    return NotFound(StrCat(url.shown, ": nothing there is NAME/VERSION/model.onnx, MLmodel, or an ",
                           ".onnx file that the URL names"));
  }
  std::sort(placed.begin(), placed.end(), [](const PlacedObject& a, const PlacedObject& b) {
    return std::tie(a.model, a.version, a.file) < std::tie(b.model, b.version, b.file);
  });
  return placed;
}

}  // namespace onnxd
