// The Hugging Face hub: https://huggingface.co/docs/hub/api. A token: HF_TOKEN, or where its own
// tools keep it. HF_ENDPOINT is a server in its place.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/str_cat.h"
#include "server/sources/object_store.h"

namespace onnxd {
namespace {

using Json = nlohmann::json;

std::string Token() {
  std::string token = FromEnvironment("HF_TOKEN");
  if (token.empty()) token = SmallFile(FromEnvironment("HF_TOKEN_PATH"));
  if (token.empty()) {
    const std::string home = FromEnvironment("HF_HOME");
    token = home.empty() ? HomeFile(".cache/huggingface/token") : SmallFile(home + "/token");
  }
  while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ') token.pop_back();
  return token;
}

// What says how texts become tokens and vectors, or are written; see server/texts/found_texts.h and
// server/generation/generation_files.h.
constexpr std::string_view kTextFiles[] = {"tokenizer.json",        "tokenizer_config.json",
                                           "modules.json",          "sentence_bert_config.json",
                                           "1_Pooling/config.json", "generation_config.json",
                                           "genai_config.json",     "config.json",
                                           "chat_template.jinja",   "chat_template.json"};

// The name that a file gets beside the chosen model; empty: it does not belong there. Files of
// texts stand at the top.
std::string NameBeside(const std::string& chosen, const std::string& path) {
  if (path.starts_with(chosen)) {
    return path.substr(chosen.rfind('/') == std::string::npos ? 0 : chosen.rfind('/') + 1);
  }
  const bool is_of_texts =
      std::find(std::begin(kTextFiles), std::end(kTextFiles), path) != std::end(kTextFiles);
  std::string name = is_of_texts ? path : "";
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

class HuggingFaceStore final : public ObjectStore {
 public:
  HuggingFaceStore(const SourceUrl& url, const Fetcher& fetcher)
      : url_(url), fetcher_(fetcher), token_(Token()) {
    endpoint_ = FromEnvironment("HF_ENDPOINT");
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
    if (endpoint_.empty()) endpoint_ = "https://huggingface.co";
  }

  // One .onnx file, the data beside it, and what its texts are.
  Result<std::vector<RemoteObject>> List() override {
    // A branch moves; its files are read as they are at one commit.
    ONNXD_ASSIGN_OR_RETURN(const Json model,
                           Document(StrCat("/api/models/", url_.bucket, "/revision/",
                                           EncodeUrl(url_.revision, false))));
    const std::string commit = model.value("sha", url_.revision);
    std::vector<Json> files;
    std::vector<std::string> models;
    std::string next =
        StrCat("/api/models/", url_.bucket, "/tree/", EncodeUrl(commit, false), "?recursive=true");
    while (!next.empty()) {
      std::string page = std::exchange(next, "");
      ONNXD_ASSIGN_OR_RETURN(const Json tree, Document(page, &next));
      for (const Json& file : tree) {
        if (!file.is_object() || file.value("type", "") != "file") continue;
        files.push_back(file);
        const std::string path = file.value("path", "");
        if (path.ends_with(".onnx")) models.push_back(path);
        if (files.size() > kMostObjects) return ResourceExhausted("too many objects");
      }
    }
    ONNXD_ASSIGN_OR_RETURN(const std::string chosen, Choose(models));
    std::vector<RemoteObject> objects;
    for (const Json& file : files) {
      const std::string path = file.value("path", "");
      RemoteObject object;
      object.path = NameBeside(chosen, path);
      if (object.path.empty()) continue;
      object.url = StrCat(endpoint_, "/", url_.bucket, "/resolve/", EncodeUrl(commit, false), "/",
                          EncodeUrl(path, true));
      object.revision = file.value("oid", commit);
      object.bytes = file.value("size", int64_t{-1});
      if (const auto lfs = file.find("lfs"); lfs != file.end() && lfs->is_object()) {
        object.checksum = {Checksum::Kind::kSha256, lfs->value("oid", "")};
      }
      objects.push_back(std::move(object));
    }
    return objects;
  }

  Result<FetchRequest> Read(const RemoteObject& object, int64_t offset) override {
    FetchRequest request = Authorized(object.url);
    if (offset > 0) request.headers["Range"] = StrCat("bytes=", offset, "-");
    return request;
  }

 private:
  Result<std::string> Choose(const std::vector<std::string>& models) const {
    const auto has = [&](const std::string& path) {
      return std::find(models.begin(), models.end(), path) != models.end();
    };
    if (!url_.path.empty()) {
      if (has(url_.path)) return url_.path;
    } else {
      for (const char* usual : {"model.onnx", "onnx/model.onnx"}) {
        if (has(usual)) return std::string(usual);
      }
      if (models.size() == 1) return models[0];
    }
    return NotFound(StrCat(
        url_.shown, url_.path.empty() ? " names none of the files: " : " is none of the files: ",
        StrJoin(models, ", ")));
  }

  FetchRequest Authorized(const std::string& address) const {
    FetchRequest request;
    request.url = address;
    if (!token_.empty()) request.headers["Authorization"] = StrCat("Bearer ", token_);
    return request;
  }

  // `next`: the path of the page behind it, if there is one.
  Result<Json> Document(const std::string& path, std::string* next = nullptr) const {
    ONNXD_ASSIGN_OR_RETURN(const auto response, fetcher_.Fetch(Authorized(endpoint_ + path)));
    const std::string link = response.Header("link");
    const size_t end = link.find(">; rel=\"next\"");
    if (next != nullptr && end != std::string::npos) {
      const size_t begin = link.rfind('<', end) + 1;
      const size_t api = link.find("/api/", begin);
      if (api < end) *next = link.substr(api, end - api);
    }
    if (response.status != 200) {
      const Status status = StatusOf(response, url_.shown);
      if (!token_.empty() || status.code() != StatusCode::kPermissionDenied) return status;
      return Unauthenticated(StrCat(url_.shown, " is not there, or needs a token: HF_TOKEN"));
    }
    Json document = Json::parse(response.body, nullptr, false);
    if (document.is_discarded()) return Unavailable(StrCat(url_.shown, ": the list is no JSON"));
    return document;
  }

  const SourceUrl url_;
  const Fetcher& fetcher_;
  const std::string token_;
  std::string endpoint_;
};

}  // namespace

std::unique_ptr<ObjectStore> NewHuggingFaceStore(const SourceUrl& url, const Fetcher& fetcher) {
  return std::make_unique<HuggingFaceStore>(url, fetcher);
}

}  // namespace onnxd
