#include "runtime/providers/gpu/tactics.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/machine.h"
#include "runtime/base/str_cat.h"
#include "runtime/tensor/data_type.h"

namespace onnxd {
namespace {

using Seconds = std::chrono::duration<double>;

// Runs in a row, so that what is timed is the device's work and not its start; and how often that,
// of which the shortest counts: ways take turns, so that what else the device does for a while
// falls to all of them.
constexpr int kRuns = 10, kRounds = 3;

// Elements from the first of an operand to behind its last, at its strides.
int64_t Extent(const OperandInfo& operand) {
  const int64_t elements = operand.shape->ElementCount();
  if (operand.strides == nullptr || elements == 0) return elements;
  int64_t last = 0;
  for (int axis = 0; axis < operand.shape->rank(); ++axis) {
    last += ((*operand.shape)[axis] - 1) * (*operand.strides)[static_cast<size_t>(axis)];
  }
  return last + 1;
}

// Memory for one call of a node's kernel; what is in it does not matter.
class TrialRun {
 public:
  static Result<TrialRun> Make(GpuDevice& device, const PrepareContext& context) {
    TrialRun run;
    ONNXD_ASSIGN_OR_RETURN(run.inputs_, run.Allocate(device, context.inputs));
    ONNXD_ASSIGN_OR_RETURN(run.outputs_, run.Allocate(device, context.outputs));
    ONNXD_ASSIGN_OR_RETURN(run.stream_, device.MakeStream());
    run.device_ = &device;
    return run;
  }

  // Seconds of one of so many runs in a row.
  Result<double> Time(const PreparedKernel& prepared, int runs) {
    DeviceBuffer scratch;
    if (prepared.scratch_bytes > 0) {
      ONNXD_ASSIGN_OR_RETURN(scratch, device_->Allocate(prepared.scratch_bytes));
    }
    const KernelContext call(inputs_, outputs_, scratch.get(), nullptr, nullptr, stream_.get());
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < runs; ++i) ONNXD_RETURN_IF_ERROR(prepared.compute(call));
    ONNXD_RETURN_IF_ERROR(stream_->Synchronize());
    const Seconds took = std::chrono::steady_clock::now() - start;
    return took.count() / runs;
  }

 private:
  Result<std::vector<void*>> Allocate(GpuDevice& device, std::span<const OperandInfo> operands) {
    std::vector<void*> addresses;
    for (const OperandInfo& operand : operands) {
      addresses.push_back(nullptr);
      if (!operand.present || operand.shape == nullptr) continue;
      const auto bytes = TensorBytes(operand.type, Extent(operand));
      if (!bytes) return Unimplemented("an operand without a size");
      ONNXD_ASSIGN_OR_RETURN(DeviceBuffer buffer, device.Allocate(static_cast<size_t>(*bytes)));
      addresses.back() = buffer.get();
      buffers_.push_back(std::move(buffer));
    }
    return addresses;
  }

  GpuDevice* device_ = nullptr;
  std::vector<DeviceBuffer> buffers_;
  std::vector<void*> inputs_, outputs_;
  std::unique_ptr<Stream> stream_;
};

struct Candidate {
  const Tactic* tactic;
  PreparedKernel prepared;
  double shortest = std::numeric_limits<double>::max();
};

// What the tactics make, in their order. What takes long is to compile, which threads do side by
// side.
std::vector<std::optional<Result<PreparedKernel>>> MakeAll(const std::vector<Tactic>& tactics) {
  std::vector<std::optional<Result<PreparedKernel>>> made(tactics.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < tactics.size(); i = next++) made[i] = tactics[i].make();
  };
  std::vector<std::jthread> helpers;
  const auto threads = static_cast<size_t>(AvailableProcessors());
  try {
    while (helpers.size() + 1 < std::min(threads, tactics.size())) helpers.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads: those that there are do it
  }
  work();
  helpers.clear();
  return made;
}

// The name of the fastest; nothing where none could be timed.
std::optional<std::string> FindFastest(GpuDevice& device, const PrepareContext& context,
                                       const std::vector<Tactic>& tactics) {
  auto run = TrialRun::Make(device, context);
  if (!run.ok()) return std::nullopt;
  std::vector<Candidate> candidates;
  auto made = MakeAll(tactics);
  for (size_t i = 0; i < tactics.size(); ++i) {
    Result<PreparedKernel>& prepared = *made[i];
    if (!prepared.ok() || !run->Time(*prepared, 1).ok()) continue;
    candidates.push_back({&tactics[i], *std::move(prepared)});
  }
  for (int round = 0; round < kRounds; ++round) {
    for (Candidate& candidate : candidates) {
      const auto seconds = run->Time(candidate.prepared, kRuns);
      if (seconds.ok()) candidate.shortest = std::min(candidate.shortest, *seconds);
    }
  }
  const auto fastest = std::min_element(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.shortest < b.shortest; });
  if (fastest == candidates.end()) return std::nullopt;
  return fastest->tactic->name;
}

// What is asked, and of which: an answer holds until there is another way.
std::string QuestionOf(const std::string& question, const std::vector<Tactic>& tactics) {
  std::string asked = question;
  for (const Tactic& tactic : tactics) asked += StrCat("\n", tactic.name);
  return asked;
}

}  // namespace

Result<PreparedKernel> PrepareFastest(GpuDevice& device, const PrepareContext& context,
                                      const std::string& question,
                                      const std::vector<Tactic>& tactics) {
  if (tactics.size() == 1 || !device.searches_tactics()) return tactics[0].make();
  const auto named = [&](const std::optional<std::string>& name) {
    return std::find_if(tactics.begin(), tactics.end(),
                        [&](const Tactic& tactic) { return tactic.name == name; });
  };
  const std::string asked = QuestionOf(question, tactics);
  auto tactic = named(device.FindFastest(asked));
  if (tactic == tactics.end()) {
    const auto fastest = FindFastest(device, context, tactics);
    if (fastest) device.StoreFastest(asked, *fastest);
    tactic = named(fastest);
  }
  if (tactic != tactics.end()) {
    auto prepared = tactic->make();
    if (prepared.ok()) return prepared;
  }
  return tactics[0].make();
}

}  // namespace onnxd
