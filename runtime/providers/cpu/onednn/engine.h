// oneDNN as this provider uses it: one CPU engine, a stream per thread, and never a team of OpenMP
// threads of its own: our pool splits the work.
#pragma once

#include <dnnl.hpp>

#include "runtime/base/function_ref.h"
#include "runtime/base/status.h"
#include "runtime/tensor/data_type.h"

namespace onnxd::onednn {

// The first call on a thread limits OpenMP to one thread there.
const dnnl::engine& Engine();
// f32 or bf16. Requires one of the two.
inline dnnl::memory::data_type TypeOf(DataType type) {
  return type == DataType::kBfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}
// The calling thread's stream.
dnnl::stream& ThreadStream();

// Runs `body`, turning dnnl::error into kInternal.
Status Guard(FunctionRef<void()> body);

}  // namespace onnxd::onednn
