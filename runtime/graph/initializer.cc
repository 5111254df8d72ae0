#include "runtime/graph/initializer.h"

#include <mutex>

#include "runtime/tensor/shared_tensor.h"

namespace onnxd {

struct Initializer::State {
  State(DataType element, Shape dims) : type(element), shape(std::move(dims)) {}

  const DataType type;
  const Shape shape;
  std::mutex mutex;
  Forms forms;            // guarded by mutex
  bool was_read = false;  // guarded by mutex
};

// Guarded by the mutex of the state beside it.
struct Initializer::Plain {
  Tensor tensor;  // undefined until materialised
  std::shared_ptr<const ByteSource> source;
  uint64_t offset = 0;
  Initializer converted_from = {};  // in place of `source`
  Conversion convert = {};
};

Initializer::Initializer(Tensor tensor)
    : state_(std::make_shared<State>(tensor.type(), tensor.shape())),
      plain_(std::make_shared<Plain>(Plain{std::move(tensor), nullptr, 0})) {}

Initializer::Initializer(DataType type, Shape shape, std::shared_ptr<const ByteSource> source,
                         uint64_t offset)
    : state_(std::make_shared<State>(type, std::move(shape))),
      plain_(std::make_shared<Plain>(Plain{Tensor(), std::move(source), offset})) {}

Initializer::Initializer(DataType type, Initializer source, Conversion convert)
    : state_(std::make_shared<State>(type, source.shape())),
      plain_(std::make_shared<Plain>(
          Plain{Tensor(), nullptr, 0, std::move(source), std::move(convert)})) {}

Initializer::Initializer(DataType type, Shape shape)
    : state_(std::make_shared<State>(type, std::move(shape))) {}

DataType Initializer::type() const { return state_->type; }
const Shape& Initializer::shape() const { return state_->shape; }

Result<std::shared_ptr<Initializer::Plain>> Initializer::Find() const {
  std::shared_ptr<Plain> plain = plain_ != nullptr ? plain_ : others_.lock();
  if (plain != nullptr) return plain;
  return Status(StatusCode::kDataLoss,
                "the elements of a weight were released after it was packed");
}

// Requires the mutex.
Result<Tensor> Initializer::Read() const {
  ONNXD_ASSIGN_OR_RETURN(const auto plain, Find());
  if (plain->tensor.defined()) return plain->tensor;
  ONNXD_ASSIGN_OR_RETURN(Tensor read, Tensor::Create(state_->type, state_->shape));
  if (plain->converted_from.defined()) {
    const Initializer& from = plain->converted_from;
    std::lock_guard lock(from.state_->mutex);
    ONNXD_ASSIGN_OR_RETURN(const Tensor elements, from.Read());
    plain->convert(elements.raw(), read.mutable_raw(), elements.ElementCount());
    return read;
  }
  ONNXD_RETURN_IF_ERROR(plain->source->ReadAt(plain->offset, read.mutable_raw(), read.bytes()));
  return read;
}

// Requires the mutex.
Result<Tensor> Initializer::ReadAndKeep() const {
  ONNXD_ASSIGN_OR_RETURN(const auto plain, Find());
  ONNXD_ASSIGN_OR_RETURN(plain->tensor, Read());
  plain->source.reset();
  plain->converted_from = {};
  return plain->tensor;
}

Result<Tensor> Initializer::Materialize() const {
  std::lock_guard lock(state_->mutex);
  state_->was_read = true;
  return ReadAndKeep();
}

Status Initializer::Load() const {
  std::lock_guard lock(state_->mutex);
  if (released()) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(const auto plain, Find());
  if (plain->converted_from.defined()) return plain->converted_from.Load();
  return ReadAndKeep().status();
}

bool Initializer::in_memory() const {
  std::lock_guard lock(state_->mutex);
  const auto plain = plain_ != nullptr ? plain_ : others_.lock();
  return plain != nullptr && plain->tensor.defined();
}

Initializer Initializer::converted_from() const {
  std::lock_guard lock(state_->mutex);
  const auto plain = plain_ != nullptr ? plain_ : others_.lock();
  return plain == nullptr ? Initializer() : plain->converted_from;
}

void Initializer::Release() {
  plain_.reset();
  others_.reset();
}

void Initializer::Yield() {
  if (plain_ == nullptr) return;
  others_ = plain_;
  plain_.reset();
}

bool Initializer::was_read() const {
  std::lock_guard lock(state_->mutex);
  return state_->was_read;
}

void Initializer::ForgetUses() const {
  std::lock_guard lock(state_->mutex);
  state_->was_read = false;
  state_->forms.clear();
}

Result<Tensor> Initializer::InForm(const std::string& form,
                                   FunctionRef<Result<Tensor>(const Tensor&)> make) const {
  std::lock_guard lock(state_->mutex);
  if (const auto found = state_->forms.find(form); found != state_->forms.end()) {
    return found->second;
  }
  ONNXD_ASSIGN_OR_RETURN(const Tensor plain, Read());
  ONNXD_ASSIGN_OR_RETURN(Tensor made, make(plain));
  made = ShareKeptTensor(std::move(made));
  state_->forms[form] = made;
  return made;
}

Tensor Initializer::FindForm(const std::string& form) const {
  std::lock_guard lock(state_->mutex);
  const auto found = state_->forms.find(form);
  return found == state_->forms.end() ? Tensor() : found->second;
}

void Initializer::AddForm(const std::string& form, Tensor tensor) const {
  std::lock_guard lock(state_->mutex);
  state_->forms[form] = ShareTensor(std::move(tensor));
}

Initializer::Forms Initializer::forms() const {
  std::lock_guard lock(state_->mutex);
  return state_->forms;
}

}  // namespace onnxd
