// onnxd config check, print: the configuration a server would have.
#include <cstdio>
#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "server/config/model_settings.h"
#include "server/config/triton_config.h"
#include "tools/command.h"
#include "tools/serve_setup.h"

namespace onnxd {
namespace {

// As a YAML scalar.
std::string Scalar(const std::string& value) {
  const bool plain = !value.empty() && value != "on" && value != "off" && value != "yes" &&
                     value != "no" && value != "null" &&
                     value.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/,") ==
                         std::string::npos;
  if (plain) return value;
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

constexpr uint64_t kMostBytes = 64 << 10;

// Of one model's own file, by its name.
Status CheckModelFile(const std::filesystem::path& file) {
  ONNXD_ASSIGN_OR_RETURN(const std::string text, ReadFile(file.string(), kMostBytes));
  ModelSettings settings;
  if (file.filename() == "model.yaml") return ApplyModelSettings(text, file.string(), settings);
  const std::string model = std::filesystem::absolute(file).parent_path().filename().string();
  return ApplyTritonConfig(text, file.string(), model, settings);
}

}  // namespace

int CheckConfig(const ServeFlags& flags) {
  const std::filesystem::path file(flags.config);
  const bool of_model = file.filename() == "model.yaml" || file.filename() == "config.pbtxt";
  const Status checked = of_model ? CheckModelFile(file) : ReadOptions(flags).status();
  if (!checked.ok()) {
    Fail(checked);
    return kExitUsage;
  }
  std::printf("ok\n");
  return kExitOk;
}

int PrintConfig(const ServeFlags& flags) {
  const auto layers = ReadLayers(flags);
  if (!layers.ok()) {
    Fail(layers.status());
    return kExitUsage;
  }
  std::string section;
  for (const auto& key : OptionKeys()) {
    if (key.section != section) std::printf("%s:\n", key.section.c_str());
    section = key.section;
    const char* origin = "default";
    for (size_t i = 1; i < layers->size(); ++i) {
      const auto& [name, options] = (*layers)[i];
      if (key.get(options) != key.get((*layers)[i - 1].second)) origin = name;
    }
    std::printf("  %s: %s  # %s\n", key.key.c_str(), Scalar(key.get(layers->back().second)).c_str(),
                origin);
  }
  return kExitOk;
}

}  // namespace onnxd
