#include "runtime/session/kernel_race.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/session/node_runner.h"

namespace onnxd {
namespace {

constexpr int64_t kBudget = int64_t{256} << 20;
constexpr int kRuns = 5;  // of each contestant; the first does not count
// What another has to be faster than the first candidate: less is noise.
constexpr double kGain = 0.95;
constexpr size_t kCacheBytes = 4 << 20;
constexpr size_t kMostRemembered = 10'000;

using Operands = std::span<const KernelRaceOperand>;

// Small numbers, so that nothing overflows or becomes denormal.
Tensor Elements(const KernelRaceOperand& operand) {
  Result<Tensor> tensor = Tensor::Create(operand.type, operand.shape);
  if (!tensor.ok()) return {};
  if (operand.type == DataType::kFloat) {
    for (int64_t i = 0; i < operand.shape.ElementCount(); ++i) {
      tensor->mutable_data<float>()[i] = 0.05f * static_cast<float>(i % 17 - 8);
    }
  }
  return *std::move(tensor);
}

struct Contestant {
  std::unique_ptr<Kernel> kernel;
  PreparedNode prepared;
  std::vector<Value> inputs;
  double seconds = std::numeric_limits<double>::infinity();
};

std::optional<Contestant> Enter(
    const std::vector<std::shared_ptr<const ExecutionProvider>>& providers, const Node& node,
    Operands operands, int threads) {
  std::vector<Value> values;
  std::vector<ValueType> types;
  std::vector<Initializer> constants;
  for (const KernelRaceOperand& operand : operands) {
    const bool present = operand.type != DataType::kUndefined;
    const Tensor elements = present ? Elements(operand) : Tensor();
    if (present && !elements.defined()) return std::nullopt;
    types.push_back(present ? ValueType::TensorOf(operand.type, ToSymbolic(operand.shape))
                            : ValueType{});
    constants.push_back(operand.is_constant && present ? Initializer(elements) : Initializer());
    values.push_back(present ? Value(elements) : Value());
  }
  const auto inferred = InferNode(node, types, std::vector<const Tensor*>(operands.size()));
  if (!inferred.ok()) return std::nullopt;
  const auto constant_input = [&](size_t i) -> const Initializer* {
    return i < constants.size() && constants[i].defined() ? &constants[i] : nullptr;
  };
  for (const auto& provider : providers) {
    auto kernel = provider->CreateKernel({node, types, *inferred, constant_input});
    if (!kernel.ok()) continue;
    auto prepared =
        PreparedNode::Make({**kernel, node, values, *inferred, threads, kBudget, kBudget},
                           std::vector<bool>(operands.size()));
    if (!prepared.ok() || !prepared->complete()) return std::nullopt;
    return Contestant{*std::move(kernel), *std::move(prepared), std::move(values)};
  }
  return std::nullopt;
}

// Leaves the caches as a model does that has other layers: without the weights, with what the layer
// before has just written.
void LikeInAModel(const Contestant& contestant, std::vector<char>& elsewhere) {
  for (char& byte : elsewhere) ++byte;
  const Tensor& x = contestant.inputs[0].tensor();
  std::memcpy(elsewhere.data(), x.raw(), std::min(elsewhere.size(), x.bytes()));
}

void RunOnce(Contestant& contestant, ThreadPool& pool, std::vector<char>& elsewhere, bool counts) {
  using Clock = std::chrono::steady_clock;
  LikeInAModel(contestant, elsewhere);
  const auto begin = Clock::now();
  const bool ok = contestant.prepared.Run(contestant.inputs, pool).ok();
  const std::chrono::duration<double> spent = Clock::now() - begin;
  if (ok && counts) contestant.seconds = std::min(contestant.seconds, spent.count());
}

size_t Race(std::vector<std::optional<Contestant>>& contestants, ThreadPool& pool) {
  std::vector<char> elsewhere(kCacheBytes);
  for (int run = 0; run < kRuns; ++run) {
    for (auto& contestant : contestants) {
      if (contestant) RunOnce(*contestant, pool, elsewhere, run > 0);
    }
  }
  size_t winner = 0;
  double best =
      contestants[0] ? contestants[0]->seconds * kGain : std::numeric_limits<double>::infinity();
  for (size_t i = 1; i < contestants.size(); ++i) {
    if (!contestants[i] || contestants[i]->seconds >= best) continue;
    winner = i;
    best = contestants[i]->seconds;
  }
  return winner;
}

void Tell(const std::string& key, std::span<const Node> candidates,
          const std::vector<std::optional<Contestant>>& contestants, size_t winner) {
  std::string told;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const double seconds = contestants[i] ? contestants[i]->seconds : HUGE_VAL;
    told += StrCat(i == winner ? " (chosen) " : " ", candidates[i].op_type);
    told += seconds < HUGE_VAL ? StrCat(" ", std::round(seconds * 1e8) / 100, " us;")
                               : std::string(" could not be timed;");
  }
  Log(LogLevel::kDebug, StrCat("kernels of ", Describe(candidates[0]), ", ", key, ":", told));
}

// The results of the process.
class Memory {
 public:
  std::optional<size_t> Find(const std::string& key) {
    std::lock_guard lock(mutex_);
    const auto found = winners_.find(key);
    return found == winners_.end() ? std::nullopt : std::optional(found->second);
  }
  void Keep(const std::string& key, size_t winner) {
    std::lock_guard lock(mutex_);
    if (winners_.size() >= kMostRemembered) winners_.clear();
    winners_[key] = winner;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, size_t> winners_;  // guarded by mutex_
};

Memory& ProcessMemory() {
  static Memory memory;
  return memory;
}

}  // namespace

KernelRace MakeKernelRace(std::vector<std::shared_ptr<const ExecutionProvider>> providers,
                          std::shared_ptr<ThreadPool> pool) {
  return [providers = std::move(providers), pool = std::move(pool)](
             const std::string& key, std::span<const Node> candidates, Operands operands) {
    const std::string whole = StrCat(pool->threads(), " threads: ", key);
    if (const auto known = ProcessMemory().Find(whole)) return *known;
    std::vector<std::optional<Contestant>> contestants;
    for (const Node& node : candidates) {
      contestants.push_back(Enter(providers, node, operands, pool->threads()));
    }
    const size_t winner = Race(contestants, *pool);
    Tell(whole, candidates, contestants, winner);
    ProcessMemory().Keep(whole, winner);
    return winner;
  };
}

}  // namespace onnxd
