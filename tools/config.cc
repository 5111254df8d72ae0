// onnxd config check, print: the configuration a server would have.
#include <cstdio>

#include "runtime/base/str_cat.h"
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

}  // namespace

int CheckConfig(const ServeFlags& flags) {
  const auto options = ReadOptions(flags);
  if (!options.ok()) {
    Fail(options.status());
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
