// Constant weights in the layouts that oneDNN's primitives ask for.
#pragma once

#include <dnnl.hpp>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/function_ref.h"
#include "runtime/base/status.h"
#include "runtime/graph/initializer.h"

namespace onnxd::onednn {

// Shared by all primitives of a node; any thread. Nearly always there is one layout; this lets go
// of the plain elements once that exists. Layouts are forms of the initializer.
class PackedWeights {
 public:
  explicit PackedWeights(Initializer weights) : weights_(std::move(weights)) {}

  // `plain` describes the weights as they are. kInternal when oneDNN fails. The memory lives as
  // long as this.
  Result<dnnl::memory> InLayout(const dnnl::memory::desc& wanted, const dnnl::memory::desc& plain);

  // A form that is made of another one.
  Result<Tensor> GetDerived(const std::string& form, FunctionRef<Result<Tensor>()> make);

 private:
  Result<Tensor> FromAnother(const dnnl::memory::desc& wanted) const;

  std::mutex mutex_;
  Initializer weights_;                                  // guarded by mutex_
  std::vector<std::pair<dnnl::memory, Tensor>> packed_;  // guarded by mutex_
};

}  // namespace onnxd::onednn
