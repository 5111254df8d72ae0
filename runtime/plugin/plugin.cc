#include "runtime/plugin/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>

#include "runtime/base/str_cat.h"
#include "runtime/ops/custom_operators.h"
#include "runtime/plugin/onnxd_plugin.h"
#include "runtime/plugin/plugin_host.h"
#include "runtime/plugin/plugin_kernel.h"

namespace onnxd {
namespace {

constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxOperators = 1000;
constexpr size_t kMaxAttributes = 100;
constexpr int32_t kMaxOperands = 64;

struct LoadedOperator {
  std::string plugin, domain, name;
  const OnnxdOperator* op;
};

// Every operator of every loaded plug-in. Entries are never moved or removed.
struct LoadedOperators {
  std::mutex mutex;
  std::deque<LoadedOperator> entries;

  const LoadedOperator* Find(const Node& node) {
    const std::lock_guard lock(mutex);
    for (const LoadedOperator& entry : entries) {
      if (entry.domain == node.domain && entry.name == node.op_type &&
          entry.op->since_version == node.since_version) {
        return &entry;
      }
    }
    return nullptr;
  }
};

LoadedOperators& AllOperators() {
  static LoadedOperators* all = new LoadedOperators;
  return *all;
}

Status InferLoaded(InferenceContext& context) {
  const LoadedOperator* loaded = AllOperators().Find(context.node());
  if (loaded == nullptr) return context.Fail("its plug-in is not loaded");
  return InferWithPlugin(loaded->plugin, *loaded->op, context);
}

// Letters, digits and a few signs: what may stand in messages, lists and file names.
bool IsName(const char* text, std::string_view also) {
  if (text == nullptr) return false;
  const std::string_view name(text, strnlen(text, kMaxNameBytes + 1));
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [&](unsigned char c) {
           return std::isalnum(c) != 0 || also.find(static_cast<char>(c)) != also.npos;
         });
}

Result<CustomOperator> Describe(const OnnxdPlugin& plugin, const OnnxdOperator* op) {
  if (op == nullptr || op->struct_size < sizeof(OnnxdOperator)) {
    return InvalidArgument("an operator's description is null or too short");
  }
  if (!IsName(op->name, "_")) return InvalidArgument("an operator has no valid name");
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat("operator ", op->name, ": ", why));
  };
  const auto range = [](int32_t least, int32_t low, int32_t high) {
    return low >= least && high >= low && high <= kMaxOperands;
  };
  if (!range(0, op->min_inputs, op->max_inputs)) return fail("its input counts make no sense");
  if (!range(1, op->min_outputs, op->max_outputs)) return fail("its output counts make no sense");
  if (op->since_version < 1) return fail("since_version is below 1");
  if (op->infer == nullptr || op->compute == nullptr) return fail("infer and compute are required");
  if (op->attribute_count > kMaxAttributes ||
      (op->attribute_count > 0 && op->attributes == nullptr)) {
    return fail("its attributes make no sense");
  }
  CustomOperator described{plugin.domain,  op->name,        op->since_version, op->min_inputs,
                           op->max_inputs, op->min_outputs, op->max_outputs,   {},
                           InferLoaded};
  static const std::set<std::string> kinds = {"INT", "FLOAT", "STRING", "INTS", "FLOATS"};
  for (size_t i = 0; i < op->attribute_count; ++i) {
    const OnnxdAttribute& attribute = op->attributes[i];
    if (!IsName(attribute.name, "_.") || attribute.kind == nullptr ||
        !kinds.contains(attribute.kind)) {
      return fail(StrCat("attribute ", i, " has no valid name or kind"));
    }
    described.attributes.push_back({attribute.name, attribute.kind, attribute.required != 0});
  }
  return described;
}

Status CheckPlugin(const OnnxdPlugin* plugin) {
  if (plugin == nullptr) return InvalidArgument("it says that it does not work with this onnxd");
  if (plugin->struct_size < sizeof(OnnxdPlugin)) return InvalidArgument("its description is short");
  if (plugin->api_version < 1 || plugin->api_version > ONNXD_PLUGIN_API_VERSION) {
    return InvalidArgument(StrCat("it needs version ", plugin->api_version,
                                  " of the plug-in interface, this onnxd has ",
                                  ONNXD_PLUGIN_API_VERSION));
  }
  if (!IsName(plugin->name, "-_")) return InvalidArgument("it has no valid name");
  if (!IsName(plugin->domain, "._-")) return InvalidArgument("its domain is no valid name");
  const std::string_view domain = plugin->domain;
  if (domain.starts_with("ai.onnx") || domain.starts_with("com.microsoft") || domain == "onnxd") {
    return InvalidArgument(StrCat("domain ", domain, " is not a plug-in's"));
  }
  if (plugin->operators == nullptr || plugin->operator_count == 0 ||
      plugin->operator_count > kMaxOperators) {
    return InvalidArgument("it has no operators, or too many");
  }
  return Status::Ok();
}

class PluginProvider : public ExecutionProvider {
 public:
  explicit PluginProvider(std::string name) : name_(std::move(name)) {}

  std::string_view name() const override { return name_; }
  bool Knows(const Node& node) const override { return Find(node) != nullptr; }

  Result<std::unique_ptr<Kernel>> CreateKernel(const KernelInfo& info) const override {
    const LoadedOperator* loaded = Find(info.node);
    if (loaded == nullptr) {
      return Unimplemented(
          StrCat(onnxd::Describe(info.node), ": plug-in '", name_, "' has no such operator"));
    }
    return MakePluginKernel(name_, *loaded->op, info);
  }

 private:
  const LoadedOperator* Find(const Node& node) const {
    const LoadedOperator* loaded = AllOperators().Find(node);
    return loaded != nullptr && loaded->plugin == name_ ? loaded : nullptr;
  }

  std::string name_;
};

Result<OnnxdPluginEntry> OpenLibrary(const std::string& path) {
  // Without a slash dlopen would search the system's folders.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return NotFound(why == nullptr ? "it cannot be opened" : why);
  }
  void* entry = dlsym(library, "onnxd_plugin");
  if (entry == nullptr) return InvalidArgument("it exports no function onnxd_plugin");
  return reinterpret_cast<OnnxdPluginEntry>(entry);
}

Result<std::shared_ptr<const ExecutionProvider>> Load(const std::string& path) {
  ONNXD_ASSIGN_OR_RETURN(const OnnxdPluginEntry entry, OpenLibrary(path));
  const OnnxdPlugin* plugin = nullptr;
  OnnxdContext context;
  ONNXD_RETURN_IF_ERROR(CallPlugin(context, "onnxd_plugin", [&] {
    plugin = entry(&PluginHost());
    return ONNXD_OK;
  }));
  ONNXD_RETURN_IF_ERROR(CheckPlugin(plugin));
  std::vector<CustomOperator> operators;
  for (size_t i = 0; i < plugin->operator_count; ++i) {
    ONNXD_ASSIGN_OR_RETURN(operators.emplace_back(), Describe(*plugin, plugin->operators[i]));
  }
  ONNXD_RETURN_IF_ERROR(RegisterCustomOperators(std::move(operators)));
  LoadedOperators& all = AllOperators();
  const std::lock_guard lock(all.mutex);
  for (size_t i = 0; i < plugin->operator_count; ++i) {
    const OnnxdOperator* op = plugin->operators[i];
    all.entries.push_back({plugin->name, plugin->domain, op->name, op});
  }
  return std::shared_ptr<const ExecutionProvider>(
      std::make_shared<const PluginProvider>(plugin->name));
}

}  // namespace

Result<std::shared_ptr<const ExecutionProvider>> LoadPlugin(const std::string& path) {
  auto provider = Load(path);
  if (provider.ok()) return provider;
  return provider.status().WithContext(StrCat("plug-in '", path, "' does not load"));
}

std::vector<Status> AddPlugins(const std::vector<std::string>& paths,
                               std::vector<std::shared_ptr<const ExecutionProvider>>& providers) {
  std::vector<Status> failures;
  std::vector<std::shared_ptr<const ExecutionProvider>> loaded;
  for (const std::string& path : paths) {
    auto provider = LoadPlugin(path);
    if (provider.ok()) {
      loaded.push_back(std::move(*provider));
    } else {
      failures.push_back(provider.status());
    }
  }
  providers.insert(providers.begin(), loaded.begin(), loaded.end());
  return failures;
}

}  // namespace onnxd
