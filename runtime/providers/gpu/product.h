// The tiled product that matrix products and convolutions share: sums over p of a(i, p) * b(p, j).
#pragma once

#include <string>

#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {

// What a product reads, adds up and writes, in the kernels' language. Of `batch` (i64), and of i, j
// and p, which are IX: i64 where a size needs it, else i32.
struct ProductText {
  DataType a = DataType::kUndefined, b = DataType::kUndefined, y = DataType::kUndefined;
  std::string accumulator;  // type of sums
  std::string parameters;  // of the kernel, each with a comma behind it; after the pointers a, b, y
  std::string functions;   // before the kernel
  std::string setup;       // statements, once batch is known
  std::string column;      // statements that load_b needs, once j is known
  std::string load_a = "A_GET(a, 0)", load_b = "B_GET(b, 0)";  // expressions of (i, p) and (p, j)
  std::string result = "sum";                                  // expression of sum, i and j
  // Neighbouring lanes read neighbours in p of a, and in p of b; else in i, and in j.
  bool a_by_p = true, b_by_p = false;
};

struct ProductSizes {
  int64_t batch, m, n, k;
};

// y[batch, i, j]. `fill`: adds the arguments of ProductText::parameters.
Result<std::function<Status(const KernelContext&, const void* a, const void* b, void* y,
                            FunctionRef<void(LaunchArguments&)> fill)>>
MakeProduct(GpuDevice& device, const ProductText& text, const ProductSizes& sizes);

// "f32" for floats of up to four bytes, "f64", "i32" for bytes, else the type itself.
std::string AccumulatorOf(DataType type);

}  // namespace onnxd
