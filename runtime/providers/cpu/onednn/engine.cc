#include "runtime/providers/cpu/onednn/engine.h"

#include <string_view>

#include "runtime/base/str_cat.h"

extern "C" void omp_set_num_threads(int);  // libgomp, which libdnnl brings

namespace onnxd::onednn {

// Primitives keep the number of threads that OpenMP had when they were made.
const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static thread_local const bool limited = [] {
    omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(limited);
  return engine;
}

dnnl::stream& ThreadStream() {
  static thread_local dnnl::stream stream(Engine());
  return stream;
}

Status Guard(FunctionRef<void()> body) {
  try {
    body();
    return Status::Ok();
  } catch (const dnnl::error& error) {
    return Internal(StrCat("oneDNN: ", std::string_view(error.what())));
  }
}

}  // namespace onnxd::onednn
