// Where a body of known size is read to: once, in the memory its tensors then use.
#pragma once

#include <algorithm>
#include <boost/asio/buffer.hpp>

#include "runtime/tensor/tensor.h"
#include "server/http/http_message.h"

namespace onnxd {

class BodyBuffer {
 public:
  // Room for `size` bytes, of which the one after the first `before` lies at kTensorAlignment.
  // False when memory is refused. Pages come into being as they are written.
  bool Allocate(size_t size, size_t before) {
    const size_t offset = (kTensorAlignment - before % kTensorAlignment) % kTensorAlignment;
    if (size > SIZE_MAX - offset - HttpBody::kPadding) return false;
    *this = BodyBuffer();
    if (size == 0) return true;
    memory_ = AllocateBuffer(offset + size + HttpBody::kPadding);
    if (memory_ == nullptr) return false;
    begin_ = memory_.get() + offset;
    size_ = size;
    return true;
  }

  size_t left() const { return size_ - filled_; }
  boost::asio::mutable_buffer Rest() { return {begin_ + filled_, left()}; }
  // Bytes were written at the begin of Rest().
  void Add(size_t bytes) { filled_ += std::min(bytes, left()); }

  // What was written, and leaves nothing.
  HttpBody Take() {
    const std::string_view bytes(reinterpret_cast<const char*>(begin_), filled_);
    size_ = filled_ = 0;
    return {bytes, std::move(memory_), HttpBody::kPadding};
  }

 private:
  Buffer memory_;
  std::byte* begin_ = nullptr;
  size_t size_ = 0, filled_ = 0;
};

}  // namespace onnxd
