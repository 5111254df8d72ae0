// A device of the host's memory that does its work as late as it may: when someone waits for it.
// What reads a result without having waited finds 0xCD bytes.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "runtime/kernel/execution_provider.h"

namespace onnxd {

class FakeDevice : public Device {
 public:
  std::string_view name() const override { return "fake:0"; }
  Result<DeviceBuffer> Allocate(size_t bytes) override;
  Result<std::shared_ptr<void>> AllocatePinned(size_t bytes) override;
  Result<std::unique_ptr<Stream>> MakeStream() override;
  bool lost() const override { return false; }

  int copies_in = 0, copies_out = 0, waits = 0, recorded = 0, replays = 0, pinned = 0;
  int64_t most_bytes = -1;   // of one allocation; -1: any
  int64_t most_in_all = -1;  // at a time; -1: any

 private:
  // What buffers of it hold, which may outlive it.
  const std::shared_ptr<std::atomic<int64_t>> held_ = std::make_shared<std::atomic<int64_t>>(0);
};

// Computes operators of one float input elementwise, on the device.
class FakeDeviceProvider : public ExecutionProvider {
 public:
  using Function = std::function<float(float)>;
  explicit FakeDeviceProvider(std::map<std::string, Function> functions)
      : functions_(std::move(functions)) {}

  std::string_view name() const override { return "fake"; }
  Device* device() const override { return &device_; }
  FakeDevice& fake() const { return device_; }
  bool Knows(const Node& node) const override { return functions_.contains(node.op_type); }
  // A function whose result is negative zero fails: the index at fault is the element's.
  Result<std::unique_ptr<Kernel>> CreateKernel(const KernelInfo& info) const override;

 private:
  std::map<std::string, Function> functions_;
  mutable FakeDevice device_;
};

}  // namespace onnxd
