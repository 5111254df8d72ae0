// The tiled product that matrix products and convolutions share: sums over p of a(i, p) * b(p, j).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
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
  // Of bytes, what is taken off each element of a, an expression of i, and of b, one of j; i32.
  // Empty: nothing.
  std::string a_zero, b_zero;
  std::string result = "sum";  // expression of sum, i and j
  // What y holds at last: an expression of `value` (the result) and `at`, its place in y (i64).
  std::string finished = "value";
  // Neighbouring lanes read neighbours in p of a, and in p of b; else in i, and in j.
  bool a_by_p = true, b_by_p = false;
  // load_a is a[i * k + p], load_b is b[j * k + p] or b[p * n + j]: several elements may be loaded
  // at once.
  bool a_rows = false, b_rows = false, b_columns = false;
  // Where load_a is a[a_place] for neighbours in p that follow each other there, by a_run of them:
  // an expression of (i, p), negative where the element is 0. Empty: nothing is known of it.
  std::string a_place;
  int64_t a_run = 1;
};

struct ProductSizes {
  int64_t batch, m, n, k;
};

// A convolution with the channels last and a filter for each channel: rows are pixels, columns are
// channels. a is the image, b [height, width, channels] of the window; the text, whose first
// parameter is `image`, Dims of height, width, channels, height and width of the result, says what
// becomes of sums.
struct DepthwiseWindow {
  int64_t images, height, width, out_height, out_width;
  std::array<int64_t, 2> kernel, strides, dilations, pads;  // along height and width
};

// Adds the arguments of ProductText::parameters.
using ProductFill = std::function<void(const KernelContext&, LaunchArguments&)>;

// Inputs of a node that are added to sums.
struct ProductAddends {
  std::optional<size_t> row;     // [n], to each row
  std::optional<size_t> matrix;  // as the output
  bool relu = false;             // negative ones become 0 at last
};

// What is left to do to sums to which a library has added a row already.
struct ProductRest {
  size_t row;  // of the node's inputs
  // Of what it finishes: parameters, functions, setup and finished are its own.
  ProductText text;
  ProductFill fill;
};

// A product of a node's inputs: what PrepareProduct runs.
struct ProductPlan {
  ProductText text;
  ProductSizes sizes;
  size_t a = 0, b = 1;  // inputs of the node
  ProductFill fill;
  // The sums, where a library may compute them, in either form; types are those of the text.
  std::optional<LibraryProduct> product = std::nullopt;
  std::optional<LibraryConvolution> convolution = std::nullopt;
  std::optional<DepthwiseWindow> depthwise = std::nullopt;
  // Where the output is the sums and these, all of the operands' type: a library may add them.
  std::optional<ProductAddends> addends = std::nullopt;
  // Where a row comes first, and more behind it.
  std::optional<ProductRest> rest = std::nullopt;
};

// Made once per node, asked once per set of shapes; errors as those of Kernel::Prepare.
using ProductPlanner = std::function<Result<ProductPlan>(const PrepareContext&)>;

// y[batch, i, j] is output 0 of the node that `context` is of.
Result<PreparedKernel> PrepareProduct(GpuDevice& device, const ProductPlan& plan,
                                      const PrepareContext& context);

std::unique_ptr<Kernel> MakeProductKernel(GpuDevice& device, ProductPlanner planner);

Result<ProductPlanner> PlanMatMul(const KernelInfo& info);  // FusedMatMul as well
Result<ProductPlanner> PlanGemm(const KernelInfo& info);
Result<ProductPlanner> PlanConv(const KernelInfo& info);  // FusedConv as well
Result<ProductPlanner> PlanConvChannelsLast(const KernelInfo& info);
Result<ProductPlanner> PlanConvTranspose(const KernelInfo& info);
Result<ProductPlanner> PlanMatMulNBits(const KernelInfo& info);

// What plans the product of a MatMul, FusedMatMul, MatMulNBits, Gemm, Conv, FusedConv,
// ConvChannelsLast or ConvTranspose node. kUnimplemented where the device declines it, or it is
// none of these.
Result<ProductPlanner> PlannerOf(const KernelInfo& info);

// Whether a zero point is absent, or constant and 0 throughout.
bool IsZero(const KernelInfo& info, size_t zero_point);

// With an input of that shape added to an output of that shape and so many columns, besides;
// nullopt where it is neither a row nor such a matrix, or there is one already.
std::optional<ProductAddends> AddendsOf(size_t input, const Shape& shape, const Shape& output,
                                        int64_t columns, ProductAddends before = {});

// "f32" for floats of up to four bytes, "f64", "i32" for bytes, else the type itself.
std::string AccumulatorOf(DataType type);

}  // namespace onnxd
