// Tensor: element type, shape, and a slice of a refcounted buffer, of the host's memory or of a
// device's; dense and row-major.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/status.h"
#include "runtime/tensor/data_type.h"
#include "runtime/tensor/device.h"
#include "runtime/tensor/shape.h"

namespace onnxd {

inline constexpr size_t kTensorAlignment = 64;

// Owned bytes, 64-byte aligned. Frees itself; shared by every Tensor that points into it.
using Buffer = std::shared_ptr<std::byte[]>;
// nullptr when the system or the thread's MemoryAccount (ChargeTo) refuses. Contents are
// uninitialised.
Buffer AllocateBuffer(size_t bytes);

// A cheap value: copies share the buffer. Elements of a kString tensor are std::string objects in
// an array of their own. Distinct Tensor objects may be used from different threads; writing
// through mutable_data while another thread reads the same buffer is a race.
class Tensor {
 public:
  Tensor() = default;

  // Uninitialised elements (empty strings). kInvalidArgument for a bad shape, kResourceExhausted
  // when memory is refused.
  static Result<Tensor> Create(DataType type, const Shape& shape);
  // As Create, on the device; no strings.
  static Result<Tensor> CreateOn(Device& device, DataType type, const Shape& shape);
  // Points at memory that `owner` keeps alive (null: the caller does), on `device` where there is
  // one. Not for strings.
  static Tensor Wrap(DataType type, Shape shape, void* data, std::shared_ptr<void> owner,
                     Device* device = nullptr);
  // A tensor holding a copy of `values`; requires values.size() == shape's element count.
  template <typename T>
  static Tensor Of(const Shape& shape, std::span<const T> values);
  template <typename T>
  static Tensor Of(const Shape& shape, std::initializer_list<T> values) {
    return Of<T>(shape, std::span<const T>(values.begin(), values.size()));
  }
  template <typename T>
  static Tensor Scalar(T value) {
    return Of<T>(Shape{}, std::span<const T>(&value, 1));
  }

  bool defined() const { return type_ != DataType::kUndefined; }
  DataType type() const { return type_; }
  const Shape& shape() const { return shape_; }
  int64_t ElementCount() const { return shape_.ElementCount(); }
  // Bytes of the elements; 0 for strings.
  size_t bytes() const;

  // Null: the elements are in the host's memory, where raw and data may be read.
  Device* device() const { return device_; }
  const void* raw() const { return data_; }
  void* mutable_raw() { return data_; }
  // Requires T to be the C++ type of type().
  template <typename T>
  const T* data() const {
    return static_cast<const T*>(data_);
  }
  template <typename T>
  T* mutable_data() {
    return static_cast<T*>(data_);
  }
  template <typename T>
  std::span<const T> elements() const {
    return {data<T>(), static_cast<size_t>(ElementCount())};
  }

  // The same elements under another shape; requires equal element counts.
  Tensor Reshaped(Shape shape) const;
  // The buffer's owner, for keeping the bytes alive.
  const std::shared_ptr<void>& owner() const { return owner_; }

 private:
  DataType type_ = DataType::kUndefined;
  Shape shape_;
  void* data_ = nullptr;
  std::shared_ptr<void> owner_;
  Device* device_ = nullptr;
};

// While it lives, the calling thread creates no tensor of more than `bytes` (kResourceExhausted);
// within another limit the smaller one holds. Sizes that data or attributes decide cannot exhaust
// the process this way.
class TensorLimit {
 public:
  explicit TensorLimit(int64_t bytes);
  ~TensorLimit();
  TensorLimit(const TensorLimit&) = delete;
  TensorLimit& operator=(const TensorLimit&) = delete;

 private:
  int64_t outer_;
};

// "float[1, 3, 8, 8]"
std::string Describe(DataType type, const Shape& shape);

template <typename T>
Tensor Tensor::Of(const Shape& shape, std::span<const T> values) {
  Tensor tensor = std::move(Create(kDataTypeOf<T>, shape)).value();
  std::copy(values.begin(), values.end(), tensor.mutable_data<T>());
  return tensor;
}

}  // namespace onnxd
