#include "runtime/device/cuda/nvrtc.h"

#include <dlfcn.h>

#include <iterator>
#include <string>
#include <string_view>

#include "runtime/base/str_cat.h"

namespace onnxd::cuda {
namespace {

Result<const NvrtcApi*> Open() {
  static NvrtcApi api;
  void* library = nullptr;
  std::string why;
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    // One that is there may lack what it is linked with.
    const char* error = dlerror();
    if (error != nullptr && !std::string_view(error).starts_with(name)) why = StrCat(": ", error);
  }
  if (library == nullptr) {
    return Unavailable(StrCat("CUDA: cannot open libnvrtc.so.13 or .12", why));
  }
  const char* missing = nullptr;
#define ONNXD_NVRTC_LOAD(name, parameters)                                \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name)); \
  if (api.name == nullptr) missing = #name;
  ONNXD_NVRTC_FUNCTIONS(ONNXD_NVRTC_LOAD)
#undef ONNXD_NVRTC_LOAD
  if (missing != nullptr) return Unavailable(StrCat("CUDA: NVRTC lacks ", missing));
  return static_cast<const NvrtcApi*>(&api);
}

std::string LogOf(const NvrtcApi& nvrtc, ::_nvrtcProgram* program) {
  size_t bytes = 0;
  if (nvrtc.nvrtcGetProgramLogSize(program, &bytes) != 0 || bytes == 0) return {};
  std::string log(bytes, '\0');
  nvrtc.nvrtcGetProgramLog(program, log.data());
  log.resize(std::min<size_t>(bytes - 1, 4096));
  return log;
}

}  // namespace

Result<const NvrtcApi*> OpenNvrtc() {
  static const Result<const NvrtcApi*> api = Open();
  return api;
}

Result<std::string> CompileToCubin(const NvrtcApi& nvrtc, const std::string& source,
                                   int compute_capability) {
  ::_nvrtcProgram* program = nullptr;
  const int created =
      nvrtc.nvrtcCreateProgram(&program, source.c_str(), "kernel.cu", 0, nullptr, nullptr);
  if (created != 0) return Internal(StrCat("NVRTC: nvrtcCreateProgram gave code ", created));
  // What is there in one capability alone, like products of warpgroups, has a name of its own.
  const std::string architecture =
      StrCat("--gpu-architecture=sm_", compute_capability, compute_capability == 90 ? "a" : "");
  // -fmad stays on, as it is by default: one rounding for a product and a sum.
  const char* options[] = {architecture.c_str(), "--std=c++17", "--disable-warnings"};
  const int compiled =
      nvrtc.nvrtcCompileProgram(program, static_cast<int>(std::size(options)), options);
  std::string cubin;
  Status status;
  size_t bytes = 0;
  if (compiled != 0) {
    status = Internal(StrCat("NVRTC: a kernel does not compile for sm_", compute_capability,
                             " (code ", compiled, "): ", LogOf(nvrtc, program)));
  } else if (nvrtc.nvrtcGetCUBINSize(program, &bytes) != 0) {
    status = Internal("NVRTC: nvrtcGetCUBINSize failed");
  } else {
    cubin.resize(bytes);
    if (nvrtc.nvrtcGetCUBIN(program, cubin.data()) != 0) {
      status = Internal("NVRTC: nvrtcGetCUBIN failed");
    }
  }
  nvrtc.nvrtcDestroyProgram(&program);
  if (!status.ok()) return status;
  return cubin;
}

}  // namespace onnxd::cuda
