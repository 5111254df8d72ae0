#include "runtime/tensor/device_tensor.h"

#include <map>
#include <mutex>
#include <tuple>

#include "runtime/base/content_hash.h"

namespace onnxd {
namespace {

constexpr size_t kLeastShared = 64 << 10;

// What is on devices, by its contents: 128 bits tell those of honest models apart, and what others
// make to collide is theirs alone by the secret.
class Registry {
 public:
  Result<Tensor> Share(const Tensor& host, Device& device, Stream& stream) {
    const ContentHash hash =
        HashBytes({static_cast<const char*>(host.raw()), host.bytes()}, secret_);
    const Key key{&device, hash.low, hash.high, host.bytes()};
    {
      std::lock_guard lock(mutex_);
      const auto found = buffers_.find(key);
      if (found != buffers_.end()) {
        if (const DeviceBuffer buffer = found->second.lock()) {
          return Tensor::Wrap(host.type(), host.shape(), buffer.get(), buffer, &device);
        }
      }
    }
    ONNXD_ASSIGN_OR_RETURN(Tensor made, CopyToDevice(host, device, stream));
    // Others may read it on streams of their own from now on.
    ONNXD_RETURN_IF_ERROR(stream.Synchronize());
    std::lock_guard lock(mutex_);
    std::erase_if(buffers_, [](const auto& entry) { return entry.second.expired(); });
    buffers_[key] = made.owner();
    return made;
  }

 private:
  using Key = std::tuple<Device*, uint64_t, uint64_t, size_t>;

  const HashSecret secret_ = NewHashSecret();
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<void>> buffers_;  // guarded by mutex_
};

}  // namespace

Result<Tensor> CopyToDevice(const Tensor& host, Device& device, Stream& stream) {
  ONNXD_ASSIGN_OR_RETURN(Tensor made, Tensor::CreateOn(device, host.type(), host.shape()));
  ONNXD_RETURN_IF_ERROR(stream.CopyIn(made.mutable_raw(), host.raw(), host.bytes()));
  return made;
}

Result<Tensor> CopyToHost(const Tensor& on_device, Stream& stream) {
  ONNXD_ASSIGN_OR_RETURN(Tensor made, Tensor::Create(on_device.type(), on_device.shape()));
  ONNXD_RETURN_IF_ERROR(stream.CopyOut(made.mutable_raw(), on_device.raw(), on_device.bytes()));
  ONNXD_RETURN_IF_ERROR(stream.Synchronize());
  return made;
}

Result<Tensor> ShareOnDevice(const Tensor& host, Device& device, Stream& stream) {
  static auto* const registry = new Registry();  // sessions may outlive static destruction
  if (host.bytes() >= kLeastShared) return registry->Share(host, device, stream);
  return CopyToDevice(host, device, stream);
}

}  // namespace onnxd
