#include "runtime/providers/default_providers.h"

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/cpu_provider.h"

namespace onnxd {

Result<std::vector<std::shared_ptr<const ExecutionProvider>>> MakeProviders(
    const std::vector<std::string>& names) {
  static const std::shared_ptr<const ExecutionProvider> cpu = MakeCpuProvider();
  std::vector<std::shared_ptr<const ExecutionProvider>> providers;
  for (const std::string& name : names) {
    if (name != cpu->name()) {
      return InvalidArgument(StrCat("unknown provider '", name, "'; this build has: cpu"));
    }
  }
  providers.push_back(cpu);
  return providers;
}

}  // namespace onnxd
