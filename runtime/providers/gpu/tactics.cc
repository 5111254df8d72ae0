#include "runtime/providers/gpu/tactics.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/machine.h"
#include "runtime/base/size_class.h"
#include "runtime/base/str_cat.h"
#include "runtime/tensor/data_type.h"

namespace onnxd {
namespace {

using Seconds = std::chrono::duration<double>;

// Seconds of runs in a row, recorded where the device can, so that what is timed is its work and
// not what it costs to start it (for small products and cuDNN's that is more); and how many these
// are. The shortest of so many rounds counts: ways take turns, so that what else the device does
// for a while falls to all of them. One that takes so many times as long as another loses early.
constexpr double kSeconds = 1e-3;
constexpr int kLeastRuns = 3, kMostRuns = 20, kRounds = 3;
constexpr double kHopeless = 2;

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

// Memory for calls of a node's kernel; what is in it does not matter.
class Operands {
 public:
  static Result<Operands> Make(GpuDevice& device, const PrepareContext& context) {
    Operands run;
    ONNXD_ASSIGN_OR_RETURN(run.inputs_, run.Allocate(device, context.inputs));
    ONNXD_ASSIGN_OR_RETURN(run.outputs_, run.Allocate(device, context.outputs));
    ONNXD_ASSIGN_OR_RETURN(run.stream_, device.MakeStream());
    return run;
  }

  std::span<void* const> inputs() const { return inputs_; }
  std::span<void* const> outputs() const { return outputs_; }
  Stream& stream() const { return *stream_; }

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

  std::vector<DeviceBuffer> buffers_;
  std::vector<void*> inputs_, outputs_;
  std::unique_ptr<Stream> stream_;
};

// One way, which has run once.
class Candidate {
 public:
  static Result<Candidate> Make(GpuDevice& device, Operands& operands, const Tactic& tactic,
                                PreparedKernel prepared) {
    Candidate candidate;
    candidate.tactic_ = &tactic;
    candidate.operands_ = &operands;
    candidate.prepared_ = std::move(prepared);
    if (candidate.prepared_.scratch_bytes > 0) {
      ONNXD_ASSIGN_OR_RETURN(candidate.scratch_,
                             device.Allocate(candidate.prepared_.scratch_bytes));
    }
    ONNXD_ASSIGN_OR_RETURN(const double first,
                           candidate.TimeOnce([&] { return candidate.Compute(1); }));
    candidate.runs_ = static_cast<int>(
        std::clamp<double>(kSeconds / first, double{kLeastRuns}, double{kMostRuns}));
    candidate.Record();
    return candidate;
  }

  const Tactic& tactic() const { return *tactic_; }
  double shortest() const { return shortest_; }  // seconds of a run

  Status Time() {
    ONNXD_ASSIGN_OR_RETURN(const double seconds, TimeOnce([&] {
                             return graph_ == nullptr ? Compute(runs_)
                                                      : operands_->stream().Replay(*graph_);
                           }));
    shortest_ = std::min(shortest_, seconds / runs_);
    return Status::Ok();
  }

 private:
  Status Compute(int runs) const {
    const KernelContext call(operands_->inputs(), operands_->outputs(), scratch_.get(), nullptr,
                             nullptr, &operands_->stream());
    for (int i = 0; i < runs; ++i) ONNXD_RETURN_IF_ERROR(prepared_.compute(call));
    return Status::Ok();
  }

  template <typename Work>
  Result<double> TimeOnce(const Work& work) const {
    const auto start = std::chrono::steady_clock::now();
    ONNXD_RETURN_IF_ERROR(work());
    ONNXD_RETURN_IF_ERROR(operands_->stream().Synchronize());
    return Seconds(std::chrono::steady_clock::now() - start).count();
  }

  // Leaves no graph where the device does not record.
  void Record() {
    Stream& stream = operands_->stream();
    if (!stream.BeginRecording().ok()) return;
    const Status recorded = Compute(runs_);
    auto graph = stream.EndRecording();
    if (recorded.ok() && graph.ok()) graph_ = *std::move(graph);
  }

  const Tactic* tactic_ = nullptr;
  Operands* operands_ = nullptr;
  PreparedKernel prepared_;
  DeviceBuffer scratch_;
  int runs_ = 1;
  std::unique_ptr<DeviceGraph> graph_;
  double shortest_ = std::numeric_limits<double>::max();
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

std::string SizesOf(const TacticQuestion& question) {
  std::string sizes;
  for (const int64_t size : question.sizes) sizes += StrCat(" ", size);
  return sizes;
}

// For a line of the log.
std::string Told(const Candidate& candidate) {
  const double seconds = candidate.shortest();
  if (seconds > 1e6) return StrCat(" ", candidate.tactic().name, " could not be timed;");
  return StrCat(" ", candidate.tactic().name, " ", std::round(seconds * 1e8) / 100, " us;");
}

// The name of the fastest; nothing where none could be timed.
std::optional<std::string> FindFastest(GpuDevice& device, const PrepareContext& context,
                                       const TacticQuestion& question,
                                       const std::vector<Tactic>& tactics) {
  auto operands = Operands::Make(device, context);
  if (!operands.ok()) return std::nullopt;
  std::vector<Candidate> candidates;
  auto made = MakeAll(tactics);
  for (size_t i = 0; i < tactics.size(); ++i) {
    if (!made[i]->ok()) continue;
    auto candidate = Candidate::Make(device, *operands, tactics[i], **std::move(made[i]));
    if (candidate.ok()) candidates.push_back(*std::move(candidate));
  }
  std::string told;
  for (int round = 0; round < kRounds; ++round) {
    double shortest = std::numeric_limits<double>::max();
    for (Candidate& candidate : candidates) {
      if (candidate.Time().ok()) shortest = std::min(shortest, candidate.shortest());
    }
    std::erase_if(candidates, [&](const Candidate& candidate) {
      const bool is_hopeless = candidate.shortest() > kHopeless * shortest;
      if (is_hopeless) told += Told(candidate);
      return is_hopeless;
    });
  }
  const auto fastest = std::min_element(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.shortest() < b.shortest(); });
  for (const Candidate& candidate : candidates) told += Told(candidate);
  Log(LogLevel::kDebug, StrCat("tactics of", SizesOf(question), ":", told));
  if (fastest == candidates.end()) return std::nullopt;
  return fastest->tactic().name;
}

// What is asked, and of which: an answer holds until there is another way.
std::string Asked(const std::string& text, const std::string& sizes,
                  const std::vector<Tactic>& tactics) {
  std::string asked = text + sizes;
  for (const Tactic& tactic : tactics) asked += StrCat("\n", tactic.name);
  return asked;
}

// Ways that read several elements at once want rows of so many.
constexpr int64_t kAligned = 8;

std::string SizeClassesOf(const TacticQuestion& question) {
  std::string classes = " about";
  for (const int64_t size : question.sizes) {
    classes += StrCat(" ", SizeClass(size), size % kAligned == 0 ? "" : " odd");
  }
  return classes;
}

}  // namespace

Result<PreparedKernel> PrepareFastest(GpuDevice& device, const PrepareContext& context,
                                      const TacticQuestion& question,
                                      const std::vector<Tactic>& tactics) {
  if (tactics.size() == 1 || !device.searches_tactics()) return tactics[0].make();
  const auto named = [&](const std::optional<std::string>& name) {
    return std::find_if(tactics.begin(), tactics.end(),
                        [&](const Tactic& tactic) { return tactic.name == name; });
  };
  const std::string exact = Asked(question.text, SizesOf(question), tactics);
  const std::string about = Asked(question.text, SizeClassesOf(question), tactics);
  auto known = device.FindFastest(exact);
  if (!known) known = device.FindFastest(about);
  auto tactic = named(known);
  if (tactic == tactics.end()) {
    const auto fastest = FindFastest(device, context, question, tactics);
    if (fastest) {
      device.StoreFastest(exact, *fastest);
      device.StoreFastest(about, *fastest);
    }
    tactic = named(fastest);
  }
  if (tactic != tactics.end()) {
    auto prepared = tactic->make();
    if (prepared.ok()) return prepared;
  }
  return tactics[0].make();
}

}  // namespace onnxd
