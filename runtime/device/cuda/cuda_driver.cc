#include "runtime/device/cuda/cuda_driver.h"

#include <dlfcn.h>

#include "runtime/base/str_cat.h"

namespace onnxd::cuda {

Result<DriverApi> LoadDriver(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Unavailable(StrCat("CUDA: cannot open ", path));
  DriverApi driver;
  const char* missing = nullptr;
#define ONNXD_CUDA_LOAD(name, parameters)                                       \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(library, #name)); \
  if (driver.name == nullptr) missing = #name;
  ONNXD_CUDA_FUNCTIONS(ONNXD_CUDA_LOAD)
#undef ONNXD_CUDA_LOAD
  if (missing != nullptr) return Unavailable(StrCat("CUDA: the driver lacks ", missing));
  const int code = driver.cuInit(0);
  if (code != kSuccess) {
    return Unavailable(StrCat("CUDA: ", StatusOf(driver, code, "cuInit").message()));
  }
  return driver;
}

Result<const DriverApi*> OpenDriver() {
  static const Result<DriverApi> driver = LoadDriver("libcuda.so.1");
  if (!driver.ok()) return driver.status();
  return &*driver;
}

bool IsFatal(int code) {
  switch (code) {
    case 214:  // an uncorrectable error of its memory
    case 220:  // of its links
    case 700:  // an illegal address, and what else ends a context
    case 702:
    case 709:
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
    case 999:
      return true;
    default:
      return false;
  }
}

Status StatusOf(const DriverApi& driver, int code, const char* call) {
  if (code == kSuccess) return Status::Ok();
  const char* name = nullptr;
  if (driver.cuGetErrorName(code, &name) != kSuccess || name == nullptr) name = "an unknown error";
  const std::string message = StrCat("CUDA: ", call, " failed with ", name, " (", code, ")");
  if (code == kOutOfMemory) return ResourceExhausted(message);
  if (code == kNoDevice || IsFatal(code)) return Unavailable(message);
  return Internal(message);
}

}  // namespace onnxd::cuda
