#include "runtime/graph/initializer.h"

namespace onnxd {

struct Initializer::State {
  DataType type;
  Shape shape;
  Tensor tensor;  // undefined until materialised
  std::shared_ptr<const ByteSource> source;
  uint64_t offset = 0;
};

Initializer::Initializer(Tensor tensor)
    : state_(std::make_shared<State>(
          State{tensor.type(), tensor.shape(), std::move(tensor), nullptr, 0})) {
  state_->type = state_->tensor.type();
  state_->shape = state_->tensor.shape();
}

Initializer::Initializer(DataType type, Shape shape, std::shared_ptr<const ByteSource> source,
                         uint64_t offset)
    : state_(std::make_shared<State>(
          State{type, std::move(shape), Tensor(), std::move(source), offset})) {}

DataType Initializer::type() const { return state_->type; }
const Shape& Initializer::shape() const { return state_->shape; }

Result<Tensor> Initializer::Materialize() const {
  if (!state_->tensor.defined()) {
    ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(state_->type, state_->shape));
    ONNXD_RETURN_IF_ERROR(
        state_->source->ReadAt(state_->offset, tensor.mutable_raw(), tensor.bytes()));
    state_->tensor = std::move(tensor);
    state_->source.reset();
  }
  return state_->tensor;
}

}  // namespace onnxd
