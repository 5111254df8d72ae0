// What the kernels of the three TreeEnsemble operators share: rows of numbers become scores.
#pragma once

#include "runtime/base/function_ref.h"
#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/forest.h"

namespace onnxd {

// How a batch of rows of one shape is cut among threads and passes.
class ForestRows {
 public:
  // kInvalidArgument if the input is no vector or matrix, or has fewer columns than the trees use.
  template <typename T>
  static Result<ForestRows> Make(const PrepareContext& context, const Forest<T>& forest);

  int64_t count() const { return count_; }
  size_t scratch_bytes() const { return static_cast<size_t>(parts_) * part_bytes_; }

  // Calls finish(row, its scores, which it may change) once for each row, on several threads at
  // once.
  template <typename T>
  void ForEach(const KernelContext& k, const Forest<T>& forest,
               FunctionRef<void(int64_t, double*)> finish) const;

 private:
  DataType type_;
  int64_t count_, width_;
  int64_t block_;  // rows at once
  int64_t parts_;  // of the rows, a thread for each
  size_t score_bytes_, part_bytes_;
};

}  // namespace onnxd
