// Initializer: a weight whose elements are in memory, or still in their file until someone needs
// them; and the forms that kernels packed them into.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "runtime/base/file.h"
#include "runtime/base/function_ref.h"
#include "runtime/base/status.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

// A cheap value; copies share elements and forms. FindForm, InForm and AddForm may be called from
// any thread; everything else is for the one thread that loads the model.
class Initializer {
 public:
  using Forms = std::map<std::string, Tensor>;
  using Conversion = std::function<void(const void* from, void* to, int64_t count)>;

  Initializer() = default;
  explicit Initializer(Tensor tensor);
  // Little-endian row-major elements at [offset, offset + bytes of type and shape) of `source`.
  // Requires a validated shape, a type that is not string, and a range inside the source.
  Initializer(DataType type, Shape shape, std::shared_ptr<const ByteSource> source,
              uint64_t offset);
  // The elements of `source` in another type, made when someone needs them.
  Initializer(DataType type, Initializer source, Conversion convert);
  // Of which there will be nothing but forms.
  Initializer(DataType type, Shape shape);

  bool defined() const { return state_ != nullptr; }
  DataType type() const;
  const Shape& shape() const;

  // The elements, 64-byte aligned; read from the source on the first call and kept. kDataLoss when
  // the file changed or the elements were released, kResourceExhausted when memory is refused.
  Result<Tensor> Materialize() const;
  // Reads the elements now if they are still in their file; those of a conversion stay unconverted.
  Status Load() const;
  // Whether the elements are there without a file or a conversion.
  bool in_memory() const;
  // What this is a conversion of; undefined where it is none, or its elements were asked for.
  Initializer converted_from() const;
  // Whether any copy was materialised since the last ForgetUses.
  bool was_read() const;
  // Forgets that as well as all forms.
  void ForgetUses() const;
  // This copy will not ask for the elements any more; they go with the last copy that may.
  void Release();
  // This copy has the elements only as long as another one may ask for them.
  void Yield();
  bool released() const { return plain_ == nullptr && others_.expired(); }

  // The elements as a kernel wants them. `form` names the layout with all its parameters; `make`
  // turns the plain elements into it when no copy of this initializer did before. Equal forms of
  // different initializers share memory (shared_tensor.h). Errors as Materialize, or what `make`
  // returns.
  Result<Tensor> InForm(const std::string& form,
                        FunctionRef<Result<Tensor>(const Tensor& plain)> make) const;
  Tensor FindForm(const std::string& form) const;  // undefined when there is none
  void AddForm(const std::string& form, Tensor tensor) const;
  Forms forms() const;

 private:
  struct State;
  struct Plain;
  Result<std::shared_ptr<Plain>> Find() const;
  Result<Tensor> Read() const;
  Result<Tensor> ReadAndKeep() const;

  std::shared_ptr<State> state_;
  std::shared_ptr<Plain> plain_;
  std::weak_ptr<Plain> others_;  // after Yield
};

}  // namespace onnxd
