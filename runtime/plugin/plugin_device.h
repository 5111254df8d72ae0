// The memory of a plug-in's execution provider as a Device.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "runtime/base/function_ref.h"
#include "runtime/plugin/onnxd_plugin.h"
#include "runtime/tensor/device.h"

namespace onnxd {

class PluginDevice : public Device {
 public:
  // `plugin` is named in errors; `described` and `provider`, what its open made, stay for the
  // process.
  PluginDevice(std::string plugin, const OnnxdDevice& described, void* provider);

  std::string_view name() const override { return described_.name; }
  Result<DeviceBuffer> Allocate(size_t bytes) override;
  Result<std::shared_ptr<void>> AllocatePinned(size_t bytes) override;
  Result<std::unique_ptr<Stream>> MakeStream() override;
  bool lost() const override { return !loss().ok(); }
  Status loss() const override;
  DeviceStatistics statistics() const override;

  const OnnxdDevice& described() const { return described_; }
  void* provider() const { return provider_; }
  // As CallPlugin, for a function of the device.
  Status Call(std::string_view function, FunctionRef<OnnxdStatus(OnnxdContext*)> call);
  // Returns what a call answered; kUnavailable is remembered as the loss of the device.
  Status Watched(Status answer);

 private:
  const std::string plugin_;
  const OnnxdDevice& described_;
  void* const provider_;
  std::atomic<int64_t> used_bytes_{0};
  mutable std::mutex mutex_;
  Status loss_;  // guarded by mutex_
};

// What a plug-in's kernel enqueues on. Requires a stream of a PluginDevice.
void* PluginStreamOf(Stream& stream);

}  // namespace onnxd
