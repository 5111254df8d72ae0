#include "server/texts/json_file.h"

#include <utility>

#include "runtime/base/file.h"

namespace onnxd {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostBytes = 16 << 20;
constexpr int kMostDepth = 16;

}  // namespace

Json ReadJsonFile(const std::filesystem::path& path) {
  const auto text = ReadFile(path.string(), kMostBytes);
  if (!text.ok()) return nullptr;
  const auto is_shallow = [](int depth, Json::parse_event_t, const Json&) {
    return depth <= kMostDepth;
  };
  Json json = Json::parse(*text, is_shallow, /*allow_exceptions=*/false);
  if (json.is_discarded()) return nullptr;
  return json;
}

std::string TextOf(const Json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace onnxd
