// Constant weights in a kernel's own layout, made when a run first needs them.
#pragma once

#include <mutex>
#include <string>

#include "runtime/base/function_ref.h"
#include "runtime/graph/initializer.h"

namespace onnxd {

// A form that is made of another one of these weights, once.
inline Result<Tensor> DerivedForm(const Initializer& weights, const std::string& form,
                                  FunctionRef<Result<Tensor>()> make) {
  Tensor derived = weights.FindForm(form);
  if (!derived.defined()) {
    ONNXD_ASSIGN_OR_RETURN(derived, make());
    weights.AddForm(form, derived);
  }
  return derived;
}

// A form of an initializer. While a model loads, others hold its plain elements too; made later, it
// is in memory beside those of one initializer alone. Any thread.
class LazyForm {
 public:
  LazyForm(Initializer weights, std::string form)
      : weights_(std::move(weights)), form_(std::move(form)) {}

  // Errors as Initializer::InForm. `make` is the same in each call. Lets go of the plain elements.
  Result<Tensor> Get(FunctionRef<Result<Tensor>(const Tensor& plain)> make) {
    std::lock_guard lock(mutex_);
    if (!made_.defined()) {
      ONNXD_ASSIGN_OR_RETURN(made_, weights_.InForm(form_, make));
      weights_.Release();
    }
    return made_;
  }

  // A form that is made of the first one.
  Result<Tensor> GetDerived(const std::string& form, FunctionRef<Result<Tensor>()> make) {
    std::lock_guard lock(mutex_);
    return DerivedForm(weights_, form, make);
  }

 private:
  std::mutex mutex_;
  Initializer weights_;  // guarded by mutex_
  std::string form_;
  Tensor made_;  // guarded by mutex_
};

}  // namespace onnxd
