// softmax(scores) V in one kernel: scores of a block of queries against a tile of keys at a time,
// so that they never leave the device's local memory. Source: FlashAttention, arXiv 2205.14135,
// with the running maximum and sum of arXiv 1805.02867.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {

// What becomes of a product of a query and a key, in the kernels' language. Of `s` (f32, times the
// scale), `query` and `key` (i64), head[0], head[1], ... (i64, the coordinates of AttentionSizes's
// batch).
struct AttentionText {
  DataType type = DataType::kUndefined;  // of all four operands
  std::string parameters;   // of the kernel, each with a comma behind it; after the operands
  std::string functions;    // before the kernel
  std::string setup;        // statements, once head[] is known
  std::string score = "s";  // an expression; -INFINITY_F32 hides the key
  // Of what is added to that: where the query's begins, of the operands' type, one dense element
  // for each key, an even number of elements from the buffer's start; keys are even. Or nothing.
  std::string bias_row;
  std::string first_key = "0";  // keys before it are hidden from the queries down to down + QUERIES
  std::string end_key = "keys";         // and those from it on
  std::string extra = "-INFINITY_F32";  // a score more, which only takes a share of the sum
  std::string zeros = "0";  // whether a query gives zeros, of `total`: 0.0f without keys, maybe NaN
};

// An operand: [batch..., rows, width] by strides, in elements; rows are dense.
struct AttentionOperand {
  std::vector<int64_t> batch_strides;
  int64_t row_stride = 0;
};

struct FlashSizes;

// What every kernel of attention begins with: X, HEAD, VALUE_HEAD, BATCH_RANK, the parts of the
// text by their names in capitals, its functions, and FIND_HEAD.
std::string AttentionDefinitions(const AttentionText& text, const FlashSizes& sizes);

struct FlashSizes {
  std::vector<int64_t> batch;
  int64_t queries, keys;
  int64_t head, value_head;  // widths of queries and keys, and of values and results
  float scale;
  AttentionOperand q, k, v, y;
};

// Whether the device has the local memory for heads of that width.
bool FitsFlashAttention(const GpuDevice& device, int64_t head, int64_t value_head);

struct AttentionPointers {
  const void *q, *k, *v;
  void *y, *scratch;
};

// What every kernel of attention takes: pointers but for the scratch, those of
// AttentionText::parameters, which `fill` adds, then these.
struct AttentionArguments {
  int64_t queries, keys;
  float scale;
  DeviceDims batch, q_strides, k_strides, v_strides, y_strides;
  int64_t blocks;  // of a head's queries

  LaunchArguments All(const AttentionPointers& pointers,
                      FunctionRef<void(LaunchArguments&)> fill) const;
};

// For groups of so many queries. kUnimplemented where the batch has more axes than kernels.
Result<AttentionArguments> AttentionArgumentsOf(const FlashSizes& sizes, int64_t of_group);

struct FlashAttention {
  size_t scratch_bytes = 0;  // of the device
  std::function<Status(const KernelContext&, const AttentionPointers&,
                       FunctionRef<void(LaunchArguments&)> fill)>
      run;
};

// By the way that is the best guess. kUnimplemented where the batch has more axes than kernels, or
// heads are too wide.
Result<FlashAttention> MakeFlashAttention(GpuDevice& device, const AttentionText& text,
                                          const FlashSizes& sizes);

// What `make` makes of the attention, for a node: of the fastest of several, see tactics.h, which
// asks for kernels that read nothing on the host, and calls it on several threads at once.
Result<PreparedKernel> PrepareFlashAttention(
    GpuDevice& device, const PrepareContext& context, const AttentionText& text,
    const FlashSizes& sizes, const std::function<PreparedKernel(const FlashAttention&)>& make);

}  // namespace onnxd
