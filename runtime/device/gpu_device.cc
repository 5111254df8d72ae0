#include "runtime/device/gpu_device.h"

#include <algorithm>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"

namespace onnxd {

LaunchGrid LaunchGrid::Over(int64_t count, uint32_t lanes) {
  LaunchGrid grid;
  grid.groups[0] = static_cast<uint32_t>(std::max<int64_t>(1, (count + lanes - 1) / lanes));
  grid.lanes[0] = lanes;
  return grid;
}

Result<std::shared_ptr<const DeviceKernel>> GpuDevice::FindKernel(const std::string& source,
                                                                  const std::string& name) {
  std::shared_ptr<Entry> entry;
  {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Entry>& found = programs_[source];
    if (found == nullptr) found = std::make_shared<Entry>();
    entry = found;
  }
  // Compiling takes long: other programs need not wait for it.
  std::lock_guard lock(entry->mutex);
  if (entry->program == nullptr) {
    ONNXD_ASSIGN_OR_RETURN(entry->program, FindProgram(StrCat(Prelude(dialect()), source)));
  }
  std::shared_ptr<const DeviceKernel>& kernel = entry->kernels[name];
  if (kernel == nullptr) {
    ONNXD_ASSIGN_OR_RETURN(kernel, entry->program->FindKernel(name));
  }
  return kernel;
}

void GpuDevice::SetProgramCache(std::shared_ptr<ProgramCache> cache) {
  std::lock_guard lock(mutex_);
  cache_ = std::move(cache);
}

Result<std::unique_ptr<GpuDevice::Program>> GpuDevice::FindProgram(const std::string& text) {
  std::shared_ptr<ProgramCache> cache;
  {
    std::lock_guard lock(mutex_);
    cache = cache_;
  }
  if (cache == nullptr) return Compile(text, nullptr);
  const std::string compiler = CompilerIdentity();
  if (const auto known = cache->Find(compiler, text)) {
    auto program = LoadBinary(*known);
    if (program.ok()) return program;
    LogWarning(StrCat("a compiled kernel does not load: ", program.status().ToString()));
  }
  std::string binary;
  ONNXD_ASSIGN_OR_RETURN(auto program, Compile(text, &binary));
  if (!binary.empty()) cache->Store(compiler, text, binary);
  return program;
}

std::optional<std::string> GpuDevice::FindFastest(const std::string& question) {
  std::shared_ptr<ProgramCache> cache;
  {
    std::lock_guard lock(mutex_);
    const auto known = fastest_.find(question);
    if (known != fastest_.end()) return known->second;
    cache = cache_;
  }
  if (cache == nullptr) return std::nullopt;
  auto answer =
      cache->FindFastest(StrCat(properties().description, ", ", CompilerIdentity()), question);
  if (!answer) return std::nullopt;
  std::lock_guard lock(mutex_);
  return fastest_.emplace(question, *std::move(answer)).first->second;
}

void GpuDevice::StoreFastest(const std::string& question, const std::string& answer) {
  std::shared_ptr<ProgramCache> cache;
  {
    std::lock_guard lock(mutex_);
    fastest_[question] = answer;
    cache = cache_;
  }
  if (cache == nullptr) return;
  cache->StoreFastest(StrCat(properties().description, ", ", CompilerIdentity()), question, answer);
}

Result<DeviceBuffer> GpuDevice::Upload(std::span<const std::byte> bytes) {
  ONNXD_ASSIGN_OR_RETURN(DeviceBuffer buffer, Allocate(bytes.size()));
  ONNXD_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, MakeStream());
  ONNXD_RETURN_IF_ERROR(stream->CopyIn(buffer.get(), bytes.data(), bytes.size()));
  ONNXD_RETURN_IF_ERROR(stream->Synchronize());
  return buffer;
}

std::vector<std::string> GpuDevice::sources() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [source, entry] : programs_) all.push_back(source);
  return all;
}

}  // namespace onnxd
