// Initializer: a weight whose elements are in memory, or still in its file until someone needs
// them.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

// A cheap value; copies share the state. Used by one thread at a time (loading is single-threaded).
class Initializer {
 public:
  Initializer() = default;
  explicit Initializer(Tensor tensor);
  // Little-endian row-major elements at [offset, offset + bytes of type and shape) of `source`.
  // Requires a validated shape, a type that is not string, and a range inside the source.
  Initializer(DataType type, Shape shape, std::shared_ptr<const ByteSource> source,
              uint64_t offset);

  bool defined() const { return state_ != nullptr; }
  DataType type() const;
  const Shape& shape() const;

  // The elements, 64-byte aligned; read from the source on the first call and kept. kDataLoss when
  // the file changed, kResourceExhausted when memory is refused.
  Result<Tensor> Materialize() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace onnxd
