#include "runtime/device/opencl/opencl_api.h"

#include <dlfcn.h>

#include "runtime/base/str_cat.h"

namespace onnxd::opencl {
namespace {

constexpr const char* kLibrary = "libOpenCL.so.1";

Result<const Api*> Open() {
  static Api api;
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Unavailable(StrCat("OpenCL: cannot open ", kLibrary));
  const char* missing = nullptr;
#define ONNXD_OPENCL_LOAD(result, name, parameters)                       \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name)); \
  if (api.name == nullptr) missing = #name;
  ONNXD_OPENCL_FUNCTIONS(ONNXD_OPENCL_LOAD)
#undef ONNXD_OPENCL_LOAD
  if (missing != nullptr) return Unavailable(StrCat("OpenCL: ", kLibrary, " lacks ", missing));
  return static_cast<const Api*>(&api);
}

}  // namespace

Result<const Api*> OpenApi() {
  static const Result<const Api*> api = Open();
  return api;
}

Status StatusOf(Int code, const char* call) {
  if (code == kSuccess) return Status::Ok();
  const std::string message = StrCat("OpenCL: ", call, " failed with code ", code);
  switch (code) {
    case kDeviceNotAvailable:
      return Unavailable(message);
    case kMemObjectAllocationFailure:
    case kOutOfResources:
    case kOutOfHostMemory:
      return ResourceExhausted(message);
    default:
      return Internal(message);
  }
}

}  // namespace onnxd::opencl
