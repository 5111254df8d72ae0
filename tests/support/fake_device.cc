#include "tests/support/fake_device.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

class FakeStream : public Stream {
 public:
  explicit FakeStream(FakeDevice& device) : device_(device) {}

  Status CopyIn(void* to, const void* from, size_t bytes) override {
    ++device_.copies_in;
    const auto* first = static_cast<const std::byte*>(from);
    std::vector<std::byte> staged(first, first + bytes);
    work_.push_back([=, staged = std::move(staged)] {
      if (!staged.empty()) std::memcpy(to, staged.data(), staged.size());
    });
    return Status::Ok();
  }
  Status CopyOut(void* to, const void* from, size_t bytes) override {
    ++device_.copies_out;
    std::memset(to, 0xCD, bytes);
    return CopyWithin(to, from, bytes);
  }
  Status CopyWithin(void* to, const void* from, size_t bytes) override {
    Enqueue([=] { std::memmove(to, from, bytes); });
    return Status::Ok();
  }
  Status BeginRecording() override {
    recording_ = std::make_unique<Recorded>();
    return Status::Ok();
  }
  Result<std::unique_ptr<DeviceGraph>> EndRecording() override {
    ++device_.recorded;
    return std::unique_ptr<DeviceGraph>(std::move(recording_));
  }
  Status Replay(const DeviceGraph& graph) override {
    ++device_.replays;
    for (const auto& piece : static_cast<const Recorded&>(graph).work) work_.push_back(piece);
    return Status::Ok();
  }
  Status Synchronize() override {
    ++device_.waits;
    for (const auto& piece : work_) piece();
    work_.clear();
    return Status::Ok();
  }
  void* failure_word() const override { return &failure_; }
  Result<DeviceFailure> TakeFailure() override {
    ONNXD_RETURN_IF_ERROR(Synchronize());
    return std::exchange(failure_, DeviceFailure{});
  }

  void Enqueue(std::function<void()> piece) {
    (recording_ != nullptr ? recording_->work : work_).push_back(std::move(piece));
  }

 private:
  struct Recorded : DeviceGraph {
    std::vector<std::function<void()>> work;
  };

  FakeDevice& device_;
  std::vector<std::function<void()>> work_;
  std::unique_ptr<Recorded> recording_;
  mutable DeviceFailure failure_;
};

}  // namespace

Result<DeviceBuffer> FakeDevice::Allocate(size_t bytes) {
  if (most_bytes >= 0 && bytes > static_cast<size_t>(most_bytes)) {
    return ResourceExhausted(StrCat("fake:0 has no ", bytes, " bytes"));
  }
  const auto size = static_cast<int64_t>(bytes);
  if (most_in_all >= 0 && *held_ + size > most_in_all) {
    return ResourceExhausted(StrCat("fake:0 has no ", bytes, " bytes left"));
  }
  *held_ += size;
  auto block = std::make_unique<std::vector<std::byte>>(bytes + 1, std::byte{0xCD});
  std::byte* const begin = block->data();
  return DeviceBuffer(begin, [kept = block.release(), size, held = held_](void*) {
    *held -= size;
    delete kept;
  });
}

Result<std::shared_ptr<void>> FakeDevice::AllocatePinned(size_t bytes) {
  ++pinned;
  return Allocate(bytes);
}

Result<std::unique_ptr<Stream>> FakeDevice::MakeStream() {
  return std::unique_ptr<Stream>(std::make_unique<FakeStream>(*this));
}

Result<std::unique_ptr<Kernel>> FakeDeviceProvider::CreateKernel(const KernelInfo& info) const {
  const auto found = functions_.find(info.node.op_type);
  if (found == functions_.end() || info.InputType(0) != DataType::kFloat) {
    return Unimplemented(StrCat("no ", info.node.op_type, " here"));
  }
  return MakeKernel(
      [function = found->second](const PrepareContext& context) -> Result<PreparedKernel> {
        const int64_t count = context.InputShape(0).ElementCount();
        PreparedKernel prepared;
        prepared.in_place = {{0, 0}};
        prepared.on_failure = [](const DeviceFailure& failure) {
          return InvalidArgument(StrCat("element ", failure.value, " is refused"));
        };
        prepared.compute = [=](const KernelContext& k) {
          auto& stream = static_cast<FakeStream&>(k.stream());
          const auto* in = k.input<float>(0);
          auto* out = k.output<float>(0);
          auto* failure = static_cast<DeviceFailure*>(stream.failure_word());
          stream.Enqueue([=, step = k.step()] {
            for (int64_t i = 0; i < count; ++i) {
              out[i] = function(in[i]);
              if (out[i] == 0 && std::signbit(out[i]) && failure->code == 0) {
                *failure = {step, 1, i};
              }
            }
          });
          return Status::Ok();
        };
        return prepared;
      });
}

}  // namespace onnxd
