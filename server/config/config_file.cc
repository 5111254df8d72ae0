#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "server/config/server_options.h"
#include "server/config/yaml_keys.h"

namespace onnxd {
namespace {

constexpr uint64_t kMaxConfigBytes = 1 << 20;

}  // namespace

Status ApplyConfigText(const std::string& text, const std::string& name, ServerOptions& options) {
  std::vector<YamlKey> keys;
  for (const auto& key : OptionKeys()) {
    keys.push_back({key.section, key.key, key.is_list, key.takes_null,
                    [&](const std::string& value) { return key.set(options, value); }});
  }
  return ApplyYaml(text, name, {std::move(keys), {}, {}});
}

Status ApplyConfigFile(const std::string& path, ServerOptions& options) {
  ONNXD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  return ApplyConfigText(text, path, options);
}

}  // namespace onnxd
