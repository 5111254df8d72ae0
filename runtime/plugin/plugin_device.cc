#include "runtime/plugin/plugin_device.h"

#include <new>

#include "runtime/base/str_cat.h"
#include "runtime/plugin/plugin_host.h"

namespace onnxd {
namespace {

constexpr std::align_val_t kAlignment{256};

class PluginStream : public Stream {
 public:
  PluginStream(PluginDevice& device, void* stream) : device_(device), stream_(stream) {}
  PluginStream(const PluginStream&) = delete;
  PluginStream& operator=(const PluginStream&) = delete;
  ~PluginStream() override {
    // There is nobody to tell.
    static_cast<void>(device_.Call("destroy_stream", [&](OnnxdContext*) {
      device_.described().destroy_stream(device_.provider(), stream_);
      return ONNXD_OK;
    }));
  }

  Status CopyIn(void* to, const void* from, size_t bytes) override {
    return device_.Call("copy_in", [&](OnnxdContext* context) {
      return device_.described().copy_in(&PluginHost(), context, stream_, to, from, bytes);
    });
  }
  Status CopyOut(void* to, const void* from, size_t bytes) override {
    return device_.Call("copy_out", [&](OnnxdContext* context) {
      return device_.described().copy_out(&PluginHost(), context, stream_, to, from, bytes);
    });
  }
  Status CopyWithin(void* to, const void* from, size_t bytes) override {
    return device_.Call("copy_within", [&](OnnxdContext* context) {
      return device_.described().copy_within(&PluginHost(), context, stream_, to, from, bytes);
    });
  }
  Status Synchronize() override {
    return device_.Call("synchronize", [&](OnnxdContext* context) {
      return device_.described().synchronize(&PluginHost(), context, stream_);
    });
  }

  // What fails in a plug-in's kernel, synchronize says.
  void* failure_word() const override { return nullptr; }
  Result<DeviceFailure> TakeFailure() override {
    ONNXD_RETURN_IF_ERROR(Synchronize());
    return DeviceFailure{};
  }

  void* get() const { return stream_; }

 private:
  PluginDevice& device_;
  void* const stream_;
};

}  // namespace

PluginDevice::PluginDevice(std::string plugin, const OnnxdDevice& described, void* provider)
    : plugin_(std::move(plugin)), described_(described), provider_(provider) {}

Status PluginDevice::Call(std::string_view function, FunctionRef<OnnxdStatus(OnnxdContext*)> call) {
  OnnxdContext context;
  const Status status = CallPlugin(context, function, [&] { return call(&context); });
  if (status.ok()) return status;
  return Watched(status.WithContext(StrCat("plug-in '", plugin_, "', ", name())));
}

Status PluginDevice::Watched(Status answer) {
  if (answer.code() == StatusCode::kUnavailable) {
    std::lock_guard lock(mutex_);
    if (loss_.ok()) loss_ = answer;
  }
  return answer;
}

Status PluginDevice::loss() const {
  std::lock_guard lock(mutex_);
  return loss_;
}

Result<DeviceBuffer> PluginDevice::Allocate(size_t bytes) {
  void* at = nullptr;
  ONNXD_RETURN_IF_ERROR(Call("allocate", [&](OnnxdContext* context) {
    return described_.allocate(&PluginHost(), context, provider_, bytes, &at);
  }));
  used_bytes_ += static_cast<int64_t>(bytes);
  DeviceBuffer buffer(at, [this, bytes](void* freed) {
    used_bytes_ -= static_cast<int64_t>(bytes);
    if (freed == nullptr) return;
    static_cast<void>(Call("free", [&](OnnxdContext*) {
      described_.free(provider_, freed);
      return ONNXD_OK;
    }));
  });
  if (at == nullptr || reinterpret_cast<uintptr_t>(at) % static_cast<size_t>(kAlignment) != 0) {
    return Internal(StrCat("plug-in '", plugin_, "', ", name(), ", allocate answered an address ",
                           "that is not aligned to ", static_cast<size_t>(kAlignment), " bytes"));
  }
  return buffer;
}

Result<std::shared_ptr<void>> PluginDevice::AllocatePinned(size_t bytes) {
  void* at = ::operator new(bytes, kAlignment, std::nothrow);
  if (at == nullptr) return ResourceExhausted(StrCat("no memory for ", bytes, " bytes"));
  return std::shared_ptr<void>(at, [](void* freed) { ::operator delete(freed, kAlignment); });
}

Result<std::unique_ptr<Stream>> PluginDevice::MakeStream() {
  void* stream = nullptr;
  ONNXD_RETURN_IF_ERROR(Call("make_stream", [&](OnnxdContext* context) {
    return described_.make_stream(&PluginHost(), context, provider_, &stream);
  }));
  return std::unique_ptr<Stream>(std::make_unique<PluginStream>(*this, stream));
}

DeviceStatistics PluginDevice::statistics() const {
  DeviceStatistics statistics;
  statistics.used_bytes = used_bytes_;
  return statistics;
}

void* PluginStreamOf(Stream& stream) { return static_cast<PluginStream&>(stream).get(); }

}  // namespace onnxd
