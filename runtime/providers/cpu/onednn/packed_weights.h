// Constant weights in the layouts that oneDNN's primitives ask for.
#pragma once

#include <dnnl.hpp>
#include <mutex>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tensor/tensor.h"

namespace onnxd::onednn {

// Shared by all primitives of a node; any thread. Nearly always there is one layout; the plain
// original is dropped once that exists.
class PackedWeights {
 public:
  explicit PackedWeights(Tensor original) : original_(std::move(original)) {}

  // `plain` describes the original. kInternal when oneDNN fails.
  Result<dnnl::memory> InLayout(const dnnl::memory::desc& wanted, const dnnl::memory::desc& plain);

 private:
  std::mutex mutex_;
  Tensor original_;                   // guarded by mutex_; undefined once packed
  std::vector<dnnl::memory> packed_;  // guarded by mutex_
};

}  // namespace onnxd::onednn
