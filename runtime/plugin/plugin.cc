#include "runtime/plugin/plugin.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "runtime/base/str_cat.h"
#include "runtime/plugin/onnxd_plugin.h"
#include "runtime/plugin/plugin_host.h"
#include "runtime/plugin/plugin_operators.h"

namespace onnxd {
namespace {

// What a plug-in of the interface's first version states.
constexpr size_t kFirstPluginBytes = offsetof(OnnxdPlugin, provider);

Status CheckPlugin(const OnnxdPlugin* plugin) {
  if (plugin == nullptr) return InvalidArgument("it says that it does not work with this onnxd");
  if (plugin->struct_size < kFirstPluginBytes) return InvalidArgument("its description is short");
  if (plugin->api_version < 1 || plugin->api_version > ONNXD_PLUGIN_API_VERSION) {
    return InvalidArgument(StrCat("it needs version ", plugin->api_version,
                                  " of the plug-in interface, this onnxd has ",
                                  ONNXD_PLUGIN_API_VERSION));
  }
  if (!IsPluginName(plugin->name, "-_")) return InvalidArgument("it has no valid name");
  return Status::Ok();
}

// Null: it has none.
Result<const OnnxdExecutionProvider*> ProviderOf(const OnnxdPlugin& plugin) {
  const OnnxdExecutionProvider* const none = nullptr;
  if (plugin.struct_size < sizeof(OnnxdPlugin) || plugin.provider == nullptr) return none;
  ONNXD_RETURN_IF_ERROR(CheckPluginProvider(*plugin.provider));
  return plugin.provider;
}

Result<std::shared_ptr<const Plugin>> Take(void* library) {
  const auto entry = reinterpret_cast<OnnxdPluginEntry>(dlsym(library, "onnxd_plugin"));
  if (entry == nullptr) return InvalidArgument("it exports no function onnxd_plugin");
  const OnnxdPlugin* described = nullptr;
  OnnxdContext context;
  ONNXD_RETURN_IF_ERROR(CallPlugin(context, "onnxd_plugin", [&] {
    described = entry(&PluginHost());
    return ONNXD_OK;
  }));
  ONNXD_RETURN_IF_ERROR(CheckPlugin(described));
  auto plugin = std::make_shared<Plugin>();
  plugin->name = described->name;
  ONNXD_ASSIGN_OR_RETURN(plugin->provider, ProviderOf(*described));
  if (described->operator_count > 0 || plugin->provider == nullptr) {
    ONNXD_ASSIGN_OR_RETURN(plugin->operators, RegisterPluginOperators(*described));
  }
  return std::shared_ptr<const Plugin>(std::move(plugin));
}

Result<std::shared_ptr<const Plugin>> Load(const std::string& path) {
  struct Open {
    std::mutex mutex;
    std::map<void*, std::shared_ptr<const Plugin>> by_library;  // guarded by mutex
  };
  static auto* const open = new Open;
  // Without a slash dlopen would search the system's folders.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return NotFound(why == nullptr ? "it cannot be opened" : why);
  }
  std::lock_guard lock(open->mutex);
  auto& known = open->by_library[library];
  if (known == nullptr) {
    ONNXD_ASSIGN_OR_RETURN(known, Take(library));
  }
  return known;
}

}  // namespace

Result<std::shared_ptr<const Plugin>> LoadPlugin(const std::string& path) {
  auto plugin = Load(path);
  if (plugin.ok()) return plugin;
  return plugin.status().WithContext(StrCat("plug-in '", path, "' does not load"));
}

LoadedPlugins LoadPlugins(const std::vector<std::string>& paths) {
  LoadedPlugins loaded;
  for (const std::string& path : paths) {
    auto plugin = LoadPlugin(path);
    if (plugin.ok()) {
      loaded.plugins.push_back(std::move(*plugin));
    } else {
      loaded.failures.push_back(plugin.status());
    }
  }
  return loaded;
}

}  // namespace onnxd
