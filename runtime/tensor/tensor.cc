#include "runtime/tensor/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>

#include "runtime/base/memory_account.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kLeastHuge = kHugePage;

// What the system gave, and where in it a tensor may begin.
struct Block {
  void* whole = nullptr;
  std::byte* begin = nullptr;
};

// For small blocks malloc takes a fifth of posix_memalign's time: it keeps what was freed.
Block Allocate(size_t bytes) {
  Block block;
  if (bytes < kLeastHuge) {
    size_t space = bytes + kTensorAlignment;
    block.whole = std::malloc(space);
    void* begin = block.whole;
    if (begin != nullptr) std::align(kTensorAlignment, bytes, begin, space);
    block.begin = static_cast<std::byte*>(begin);
  } else if (posix_memalign(&block.whole, kHugePage, bytes) == 0) {
    // Whole huge pages only: the rest of the last one would be memory that nobody uses.
    madvise(block.whole, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
    block.begin = static_cast<std::byte*>(block.whole);
  }
  return block;
}

}  // namespace

Buffer AllocateBuffer(size_t bytes) {
  const size_t rounded = (bytes + kTensorAlignment) / kTensorAlignment * kTensorAlignment;
  if (rounded < bytes) return nullptr;
  MemoryAccount* const account = ChargeTo::Current();
  const auto charged = static_cast<int64_t>(rounded);
  if (account != nullptr && !account->Add(charged)) return nullptr;
  const Block block = Allocate(rounded);
  if (block.begin == nullptr) {
    if (account != nullptr) account->Release(charged);
    return nullptr;
  }
  if (account == nullptr) {
    return Buffer(block.begin, [whole = block.whole](std::byte*) { std::free(whole); });
  }
  return Buffer(block.begin,
                [whole = block.whole, charged, held = account->shared_from_this()](std::byte*) {
                  std::free(whole);
                  held->Release(charged);
                });
}

namespace {

thread_local int64_t tensor_limit = std::numeric_limits<int64_t>::max();

Status CheckLimit(DataType type, const Shape& shape, int64_t bytes) {
  if (bytes <= tensor_limit) return Status::Ok();
  return ResourceExhausted(
      StrCat(Describe(type, shape), " needs ", bytes, " bytes, the limit is ", tensor_limit));
}

}  // namespace

TensorLimit::TensorLimit(int64_t bytes) : outer_(tensor_limit) {
  tensor_limit = std::min(tensor_limit, bytes);
}

TensorLimit::~TensorLimit() { tensor_limit = outer_; }

Result<Tensor> Tensor::Create(DataType type, const Shape& shape) {
  ONNXD_RETURN_IF_ERROR(shape.Validate());
  Tensor tensor;
  tensor.type_ = type;
  tensor.shape_ = shape;
  const int64_t count = shape.ElementCount();
  if (type == DataType::kString) {
    const auto bytes = count * static_cast<int64_t>(sizeof(std::string));
    ONNXD_RETURN_IF_ERROR(CheckLimit(type, shape, bytes));
    auto* strings = new (std::nothrow) std::string[static_cast<size_t>(count)];
    if (strings == nullptr)
      return ResourceExhausted(StrCat("no memory for ", Describe(type, shape)));
    tensor.owner_ = std::shared_ptr<std::string[]>(strings);
    tensor.data_ = strings;
    return tensor;
  }
  const auto bytes = TensorBytes(type, count);
  if (!bytes) return InvalidArgument(StrCat(Describe(type, shape), " is too large"));
  ONNXD_RETURN_IF_ERROR(CheckLimit(type, shape, *bytes));
  Buffer buffer = AllocateBuffer(static_cast<size_t>(*bytes));
  if (buffer == nullptr) return ResourceExhausted(StrCat("no memory for ", Describe(type, shape)));
  tensor.data_ = buffer.get();
  tensor.owner_ = std::move(buffer);
  return tensor;
}

Result<Tensor> Tensor::CreateOn(Device& device, DataType type, const Shape& shape) {
  ONNXD_RETURN_IF_ERROR(shape.Validate());
  const auto bytes = TensorBytes(type, shape.ElementCount());
  if (!bytes || type == DataType::kString) {
    return InvalidArgument(StrCat(Describe(type, shape), " cannot be on ", device.name()));
  }
  ONNXD_RETURN_IF_ERROR(CheckLimit(type, shape, *bytes));
  ONNXD_ASSIGN_OR_RETURN(DeviceBuffer buffer, device.Allocate(static_cast<size_t>(*bytes)));
  void* const data = buffer.get();
  return Wrap(type, shape, data, std::move(buffer), &device);
}

Tensor Tensor::Wrap(DataType type, Shape shape, void* data, std::shared_ptr<void> owner,
                    Device* device) {
  Tensor tensor;
  tensor.type_ = type;
  tensor.shape_ = std::move(shape);
  tensor.data_ = data;
  tensor.owner_ = std::move(owner);
  tensor.device_ = device;
  return tensor;
}

size_t Tensor::bytes() const {
  return static_cast<size_t>(TensorBytes(type_, ElementCount()).value_or(0));
}

Tensor Tensor::Reshaped(Shape shape) const {
  Tensor copy = *this;
  copy.shape_ = std::move(shape);
  return copy;
}

std::string Describe(DataType type, const Shape& shape) {
  return StrCat(DataTypeName(type), shape.ToString());
}

}  // namespace onnxd
