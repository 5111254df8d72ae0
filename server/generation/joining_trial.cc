#include "server/generation/joining_trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"
#include "server/generation/decoder_rows.h"

namespace onnxd {
namespace {

using Joining = DecoderPlan::Joining;

constexpr auto kTimeLimit = std::chrono::seconds(10), kDeviceTimeLimit = std::chrono::seconds(60);
// Of the largest number; kernels may sum in another order for more rows, and floats of 16 bits are
// rounded.
constexpr double kRelative = 1e-3, kRelative16 = 3e-2;
constexpr double kAbsolute = 1e-5;
// Of what forgetting half of a text changes: less than that is no matter of rounding.
constexpr double kShareOfContext = 0.1;
constexpr double kFar = std::numeric_limits<double>::infinity();
using Logits = std::vector<std::vector<float>>;  // of each sequence, step after step

constexpr int64_t kVocabulary = 64;  // made-up tokens are below it

std::vector<int64_t> MadeUp(size_t tokens, int64_t seed, int64_t vocabulary) {
  std::vector<int64_t> made(tokens);
  for (size_t i = 0; i < tokens; ++i) {
    made[i] = (static_cast<int64_t>(i) * 7 + seed * 13 + 3) % vocabulary;
  }
  return made;
}

class Trial {
 public:
  Trial(DecoderPlan plan, const InferenceSession& session)
      : plan_(std::move(plan)), session_(session) {
    options_.outputs_on_device = plan_.OutputsOnDevice();
    options_.deadline = std::chrono::steady_clock::now() +
                        (session.runs_on_device() ? kDeviceTimeLimit : kTimeLimit);
    const auto& logits = session.outputs()[plan_.logits].type.shape;
    if (logits && !logits->empty() && logits->back().known()) {
      vocabulary_ = std::clamp<int64_t>(logits->back().value, 1, kVocabulary);
    }
  }

  Result<JoiningTrial> Run() {
    const std::vector<std::vector<int64_t>> prompts = {MadeUp(9, 0, vocabulary_),
                                                       MadeUp(4, 1, vocabulary_)};
    std::vector<DecoderState> states;
    Logits alone;
    for (const auto& prompt : prompts) {
      ONNXD_ASSIGN_OR_RETURN(states.emplace_back(), Prompted({prompt}));
      ONNXD_ASSIGN_OR_RETURN(const Logits logits, Steps(Joining::kAlone, {states.back()}));
      alone.push_back(logits[0]);
    }
    const std::vector<int64_t> begin(prompts[0].begin(), prompts[0].begin() + 5);
    const std::vector<int64_t> end(prompts[0].begin() + 5, prompts[0].end());
    ONNXD_ASSIGN_OR_RETURN(const DecoderState forgotten, Prompted({end}));
    ONNXD_ASSIGN_OR_RETURN(const Logits without, Steps(Joining::kAlone, {forgotten}));
    most_ = std::min(Tolerance(alone), kShareOfContext * Distance(without, {alone[0]}));

    JoiningTrial found;
    found.states_on_device = plan_.states_on_device;
    if (const auto state = Prompted({begin, end}); state.ok()) {
      const auto logits = Steps(Joining::kAlone, {*state});
      found.takes_pieces = logits.ok() && Distance(*logits, {alone[0]}) <= most_;
    }
    if (!plan_.has_mask()) return found;
    double least = most_;
    for (const Joining joining : {Joining::kPaddedBehind, Joining::kPaddedBefore}) {
      const auto logits = Steps(joining, states);
      const double distance = logits.ok() ? Distance(*logits, alone) : kFar;
      if (!(distance <= least)) continue;
      least = distance;
      found.joining = joining;
    }
    if (found.joining == Joining::kAlone) return found;
    plan_.keeps_size = true;
    const auto logits = Steps(found.joining, states);
    found.keeps_size = logits.ok() && Distance(*logits, alone) <= most_;
    if (!found.keeps_size || session_.runs_on_device()) return found;
    plan_.in_place = true;
    const auto written = Steps(found.joining, states);
    found.in_place = written.ok() && Distance(*written, alone) <= most_;
    return found;
  }

 private:
  Result<DecoderState> Prompted(const std::vector<std::vector<int64_t>>& pieces) {
    ONNXD_ASSIGN_OR_RETURN(DecoderState state, EmptyState(plan_));
    for (const auto& piece : pieces) {
      ONNXD_ASSIGN_OR_RETURN(const auto inputs, PromptInputs(plan_, state, piece));
      ONNXD_ASSIGN_OR_RETURN(const auto outputs, session_.Run(inputs, options_));
      const int64_t length = state.length + static_cast<int64_t>(piece.size());
      ONNXD_ASSIGN_OR_RETURN(state, StateAfter(plan_, outputs, length));
    }
    return state;
  }

  // Of each sequence the logits of three steps.
  Result<Logits> Steps(Joining joining, const std::vector<DecoderState>& states) {
    plan_.joining = joining;
    DecoderRows rows(plan_, StateMemoryOf(plan_, session_, Tensor::Create));
    ONNXD_RETURN_IF_ERROR(rows.Change({}, states));
    Logits all(states.size());
    for (int64_t step = 0; step < 3; ++step) {
      const std::vector<int64_t> tokens(states.size(), (11 + step) % vocabulary_);
      ONNXD_ASSIGN_OR_RETURN(const auto inputs, rows.StepInputs(tokens));
      RunOptions options = options_;
      options.outputs_into = rows.StatesAfter();
      ONNXD_ASSIGN_OR_RETURN(const auto outputs, session_.Run(inputs, options));
      ONNXD_RETURN_IF_ERROR(rows.SetStates(outputs));
      ONNXD_ASSIGN_OR_RETURN(const Tensor logits,
                             Converted(outputs[plan_.logits].tensor(), DataType::kFloat));
      const size_t each = logits.elements<float>().size() / states.size();
      for (size_t row = 0; row < states.size(); ++row) {
        const auto own = logits.elements<float>().subspan(row * each, each);
        all[row].insert(all[row].end(), own.begin(), own.end());
      }
    }
    return all;
  }

  double Tolerance(const Logits& logits) const {
    const bool is16 = session_.runs_on_device() ||
                      std::any_of(plan_.states.begin(), plan_.states.end(),
                                  [](const auto& state) { return state.type != DataType::kFloat; });
    double largest = 0;
    for (const auto& row : logits) {
      for (const float number : row) largest = std::max(largest, std::abs(double{number}));
    }
    return kAbsolute + (is16 ? kRelative16 : kRelative) * largest;
  }

  // The largest difference; NaN counts as one without bounds.
  static double Distance(const Logits& a, const Logits& b) {
    double largest = 0;
    for (size_t row = 0; row < b.size(); ++row) {
      if (a[row].size() != b[row].size()) return kFar;
      for (size_t i = 0; i < b[row].size(); ++i) {
        const double difference = std::abs(double{a[row][i]} - b[row][i]);
        if (std::isnan(difference)) return kFar;
        largest = std::max(largest, difference);
      }
    }
    return largest;
  }

  DecoderPlan plan_;
  const InferenceSession& session_;
  RunOptions options_;
  double most_ = 0;  // that logits may differ by
  int64_t vocabulary_ = kVocabulary;
};

}  // namespace

Result<JoiningTrial> TryJoining(const DecoderPlan& plan, const InferenceSession& session) {
  if (session.runs_on_device()) {
    DecoderPlan there = plan;
    there.states_on_device = true;
    auto found = Trial(std::move(there), session).Run();
    if (found.ok()) return found;
    LogInfo(StrCat("states do not stay on the device: ", found.status().message()));
  }
  auto found = Trial(plan, session).Run();
  if (found.ok()) return found;
  return FailedPrecondition(
      StrCat("made-up tokens could not be computed: ", found.status().message()));
}

void Adopt(const JoiningTrial& trial, DecoderPlan& plan) {
  plan.joining = trial.joining;
  plan.keeps_size = trial.keeps_size;
  plan.in_place = trial.in_place;
  plan.states_on_device = trial.states_on_device;
}

}  // namespace onnxd
