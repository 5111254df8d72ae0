#include "server/generation/generator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

using Clock = std::chrono::steady_clock;
using Joining = DecoderPlan::Joining;

constexpr auto kLookAtWaiting = std::chrono::milliseconds(100);

bool IsCancelled(const GenerationRequest& request) {
  return request.cancelled != nullptr && request.cancelled->load(std::memory_order_relaxed);
}

Status WhyLost(const GenerationRequest& request) {
  if (IsCancelled(request)) return Cancelled("the client is gone");
  return DeadlineExceeded("the deadline passed while the text was written");
}

// Of one token, as floats. `logits`: [..., vocabulary].
Result<Tensor> LogitsOf(const Tensor& logits, int64_t row) {
  const int64_t vocabulary = logits.shape()[logits.shape().rank() - 1];
  const size_t unit = logits.bytes() / static_cast<size_t>(logits.ElementCount());
  auto* const from = const_cast<std::byte*>(static_cast<const std::byte*>(logits.raw())) +
                     static_cast<size_t>(row * vocabulary) * unit;
  return Converted(Tensor::Wrap(logits.type(), Shape{vocabulary}, from, logits.owner()),
                   DataType::kFloat);
}

}  // namespace

struct Generator::Sequence {
  Sequence(GenerationRequest asked, std::shared_ptr<const void> kept,
           const std::shared_ptr<const TokenDecoder>& decoder)
      : request(std::move(asked)),
        keep(std::move(kept)),
        sampler(request.sampling, request.prompt),
        text(decoder, request.prompt, request.stops, request.skips_special_tokens) {}

  GenerationRequest request;
  std::shared_ptr<const void> keep;
  Sampler sampler;
  TextStream text;
  SteadyTime submitted = Clock::now(), begun{}, last_token{};
  DecoderState state;               // while its prompt is computed
  int64_t next_token = 0;           // written, and not computed
  int64_t generated = 0;            // tokens
  std::vector<TokenScores> scored;  // that no piece had yet
};

struct Generator::Group {
  Group(const DecoderPlan& plan, const StateMemory& memory) : rows(plan, memory) {}
  DecoderRows rows;
  std::vector<SequencePtr> sequences;  // one a row; null: it is over
};

Generator::Generator(std::shared_ptr<const GenerationPlan> plan, Scheduler& scheduler,
                     std::shared_ptr<ScheduledModel> scheduled, StateMemory memory,
                     std::function<void()> on_idle, std::shared_ptr<ModelMetrics> metrics)
    : plan_(std::move(plan)),
      scheduler_(scheduler),
      scheduled_(std::move(scheduled)),
      memory_(std::move(memory)),
      on_idle_(std::move(on_idle)),
      metrics_(std::move(metrics)) {}

Generator::~Generator() = default;

Status Generator::Check(const GenerationRequest& request) const {
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  if (tokens == 0) return InvalidArgument("the prompt has no tokens");
  const int64_t written = request.max_tokens == 0 ? 0 : 1;
  if (tokens + written > plan_->context_length) {
    return InvalidArgument(StrCat("the prompt has ", tokens, " tokens, and prompt and answer have ",
                                  plan_->context_length, " together at most"));
  }
  return CheckSampling(request.sampling);
}

void Generator::Submit(GenerationRequest request, std::shared_ptr<const void> keep) {
  if (const Status status = Check(request); !status.ok()) return request.done(status);
  auto sequence =
      std::make_unique<Sequence>(std::move(request), std::move(keep), plan_->token_decoder);
  bool begins = false;
  {
    std::lock_guard lock(mutex_);
    const bool idle = !busy_ && waiting_.empty();
    if (idle || static_cast<int64_t>(waiting_.size()) < plan_->queue_requests) {
      waiting_.push_back(std::move(sequence));
      begins = !std::exchange(busy_, true);
    }
  }
  if (sequence != nullptr) {
    return sequence->request.done(
        Unavailable(StrCat(plan_->queue_requests, " requests wait for this model already")));
  }
  if (begins) Advance();
}

void Generator::Advance() {
  const auto self = shared_from_this();  // what fails may be the last to hold it
  for (;;) {
    DropLost();
    TakeWaiting();
    NoteSequences();
    const Work work = Begin();
    if (work == Work::kUnderWay) return;
    if (work == Work::kDone) continue;
    {
      std::lock_guard lock(mutex_);
      if (!waiting_.empty()) continue;
      busy_ = false;
    }
    return on_idle_();
  }
}

void Generator::NoteSequences() {
  std::lock_guard lock(mutex_);
  metrics_->SetSequences(active_ + (prompting_ == nullptr ? 0 : 1),
                         static_cast<int64_t>(waiting_.size()));
}

Generator::Work Generator::Begin() {
  const bool may_prompt = active_ == 0 || prompted_tokens_ < plan_->prefill_tokens;
  if (prompting_ != nullptr && may_prompt) return RunPrompt();
  if (active_ == 0) return Work::kNone;
  prompted_tokens_ = 0;
  return RunStep();
}

// The turn goes on with the later of the two, the end of the run and that of this call: a scheduler
// that refuses answers at once, and many refusals must not call each other.
Generator::Work Generator::Run(BatchRequest run, std::function<void(BatchResult)> on_end) {
  const auto one_is_over = std::make_shared<std::atomic<bool>>(false);
  run.done = [self = shared_from_this(), one_is_over,
              on_end = std::move(on_end)](BatchResult result) {
    on_end(std::move(result));
    if (one_is_over->exchange(true)) self->Advance();
  };
  scheduler_.Submit(scheduled_, std::move(run));
  return one_is_over->exchange(true) ? Work::kDone : Work::kUnderWay;
}

bool Generator::IsLost(const Sequence& sequence) const {
  const GenerationRequest& request = sequence.request;
  return IsCancelled(request) || (request.deadline && Clock::now() >= *request.deadline);
}

void Generator::DropLost() {
  std::vector<SequencePtr> lost;
  const auto take_lost = [&](auto& sequences) {
    for (auto it = sequences.begin(); it != sequences.end();) {
      if (IsLost(**it)) {
        lost.push_back(std::move(*it));
        it = sequences.erase(it);
      } else {
        ++it;
      }
    }
  };
  if (const auto now = Clock::now(); now - looked_ >= kLookAtWaiting) {
    looked_ = now;
    std::lock_guard lock(mutex_);
    take_lost(waiting_);
  }
  if (prompting_ != nullptr && IsLost(*prompting_)) lost.push_back(std::move(prompting_));
  const size_t inactive = lost.size();
  take_lost(joining_);
  for (const auto& group : groups_) {
    for (SequencePtr& sequence : group->sequences) {
      if (sequence != nullptr && IsLost(*sequence)) lost.push_back(std::move(sequence));
    }
  }
  active_ -= static_cast<int64_t>(lost.size() - inactive);
  DropEmptyGroups();
  for (SequencePtr& sequence : lost) {
    const Status why = WhyLost(sequence->request);
    Fail(std::move(sequence), why);
  }
}

void Generator::DropEmptyGroups() {
  std::erase_if(groups_, [](const auto& group) {
    return std::all_of(group->sequences.begin(), group->sequences.end(),
                       [](const SequencePtr& sequence) { return sequence == nullptr; });
  });
}

void Generator::TakeWaiting() {
  if (prompting_ != nullptr || active_ >= plan_->max_sequences) return;
  SequencePtr next;
  {
    std::lock_guard lock(mutex_);
    if (waiting_.empty()) return;
    next = std::move(waiting_.front());
    waiting_.pop_front();
  }
  if (IsLost(*next)) {
    const Status why = WhyLost(next->request);
    return Fail(std::move(next), why);
  }
  next->begun = Clock::now();
  auto state = EmptyState(plan_->decoder);
  if (!state.ok()) return Fail(std::move(next), state.status());
  next->state = *std::move(state);
  prompting_ = std::move(next);
}

BatchRequest Generator::RunOf(std::vector<Value> inputs, const Sequence& sequence) const {
  BatchRequest run;
  run.inputs = std::move(inputs);
  run.priority = sequence.request.priority;
  run.steps = sequence.request.steps;
  return run;
}

Generator::Work Generator::RunPrompt() {
  Sequence& sequence = *prompting_;
  const auto begin = static_cast<size_t>(sequence.state.length);
  const auto rest = std::span<const int64_t>(sequence.request.prompt).subspan(begin);
  const auto most = static_cast<size_t>(plan_->prefill_tokens);
  const auto piece = rest.first(std::min(rest.size(), most));
  prompted_tokens_ += static_cast<int64_t>(piece.size());
  const bool wants_all = sequence.request.on_prompt != nullptr;
  auto inputs = PromptInputs(plan_->decoder, sequence.state, piece,
                             wants_all ? static_cast<int64_t>(piece.size()) : 1);
  if (!inputs.ok()) {
    Fail(std::move(prompting_), inputs.status());
    return Work::kDone;
  }
  BatchRequest run = RunOf(*std::move(inputs), sequence);
  run.cancelled = sequence.request.cancelled;
  return Run(std::move(run), [this, tokens = piece.size()](BatchResult result) {
    OnPrompt(std::move(result), tokens);
  });
}

void Generator::OnPrompt(BatchResult result, size_t tokens) {
  if (!result.outputs.ok()) return Fail(std::move(prompting_), result.outputs.status());
  Sequence& sequence = *prompting_;
  if (sequence.request.on_prompt != nullptr) {
    const Status scored = ScorePrompt(sequence, (*result.outputs)[plan_->decoder.logits],
                                      static_cast<size_t>(sequence.state.length), tokens);
    if (!scored.ok()) return Fail(std::move(prompting_), scored);
  }
  auto state = StateAfter(plan_->decoder, *result.outputs,
                          sequence.state.length + static_cast<int64_t>(tokens));
  if (!state.ok()) return Fail(std::move(prompting_), state.status());
  sequence.state = *std::move(state);
  if (sequence.state.length < static_cast<int64_t>(sequence.request.prompt.size())) return;
  if (sequence.request.max_tokens == 0) {
    return Finish(std::move(prompting_), FinishReason::kLength);
  }
  auto logits = LastLogits(*result.outputs, 1);
  if (!logits.ok()) return Fail(std::move(prompting_), logits.status());
  const std::span<float> numbers(logits->mutable_data<float>(),
                                 static_cast<size_t>(logits->ElementCount()));
  if (const auto finish = Write(sequence, numbers)) return Finish(std::move(prompting_), *finish);
  ++active_;
  joining_.push_back(std::move(prompting_));
}

// The tokens behind those of the piece: each is told by the logits of the one before it.
Status Generator::ScorePrompt(const Sequence& sequence, const Value& logits, size_t begin,
                              size_t tokens) {
  const GenerationRequest& request = sequence.request;
  const Shape shape = logits.is_tensor() ? logits.tensor().shape() : Shape();
  const bool has_all = shape.rank() == 3 && shape[0] == 1 &&
                       shape[1] == static_cast<int64_t>(tokens) && shape[2] > 0;
  if (!has_all) return Unimplemented("the model says nothing of the tokens of a prompt");
  std::vector<TokenScores> scores;
  for (size_t i = 0; i < tokens && begin + i + 1 < request.prompt.size(); ++i) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor row, LogitsOf(logits.tensor(), static_cast<int64_t>(i)));
    const std::span<const float> numbers(row.data<float>(), static_cast<size_t>(shape[2]));
    scores.push_back(
        ScoreToken(numbers, request.prompt[begin + i + 1], request.likeliest.value_or(0)));
  }
  request.on_prompt(std::move(scores));
  return Status::Ok();
}

// Those that join have rows, those that are over have none any more. Rows are copied once for all
// of them.
void Generator::Regroup() {
  if (plan_->decoder.joining == Joining::kAlone) {
    for (SequencePtr& sequence : std::exchange(joining_, {})) {
      groups_.push_back(std::make_unique<Group>(plan_->decoder, memory_));
      Regroup(*groups_.back(), std::move(sequence));
    }
  } else {
    if (groups_.empty()) groups_.push_back(std::make_unique<Group>(plan_->decoder, memory_));
    Regroup(*groups_[0], {});
  }
  DropEmptyGroups();
}

void Generator::Regroup(Group& group, SequencePtr only) {
  std::vector<SequencePtr> joining;
  if (only != nullptr) {
    joining.push_back(std::move(only));
  } else {
    joining.swap(joining_);
  }
  std::vector<size_t> kept;
  for (size_t row = 0; row < group.sequences.size(); ++row) {
    if (group.sequences[row] != nullptr) kept.push_back(row);
  }
  if (joining.empty() && kept.size() == group.sequences.size()) return;
  std::vector<DecoderState> states;
  for (const SequencePtr& sequence : joining) states.push_back(sequence->state);
  Status changed = group.rows.Change(kept, states);
  if (!changed.ok()) {
    // Without the memory for all: those that are there go on, where that has enough.
    FailAll(joining, changed);
    changed = group.rows.Change(kept, {});
    if (!changed.ok()) FailAll(group.sequences, changed);
    if (!changed.ok()) return;
  }
  std::erase(group.sequences, nullptr);
  for (SequencePtr& sequence : joining) {
    sequence->state = {};
    group.sequences.push_back(std::move(sequence));
  }
}

void Generator::FailAll(std::vector<SequencePtr>& sequences, const Status& status) {
  for (SequencePtr& sequence : std::exchange(sequences, {})) {
    if (sequence == nullptr) continue;
    --active_;
    Fail(std::move(sequence), status);
  }
}

Generator::Work Generator::RunStep() {
  Regroup();
  if (groups_.empty()) return Work::kDone;  // memory for none of them
  next_group_ = (next_group_ + 1) % groups_.size();
  Group& group = *groups_[next_group_];
  std::vector<int64_t> tokens;
  for (const SequencePtr& sequence : group.sequences) tokens.push_back(sequence->next_token);
  auto inputs = group.rows.StepInputs(tokens);
  if (!inputs.ok()) {
    OnStep({inputs.status()});
    return Work::kDone;
  }
  BatchRequest run = RunOf(*std::move(inputs), *group.sequences[0]);
  run.outputs_into = group.rows.StatesAfter();
  if (group.sequences.size() == 1) run.cancelled = group.sequences[0]->request.cancelled;
  return Run(std::move(run), [this](BatchResult result) { OnStep(std::move(result)); });
}

void Generator::OnStep(BatchResult result) {
  Group& group = *groups_[next_group_];
  const size_t count = group.sequences.size();
  Status status = result.outputs.status();
  Tensor logits;
  if (status.ok()) {
    auto last = LastLogits(*result.outputs, static_cast<int64_t>(count));
    status = last.ok() ? group.rows.SetStates(*result.outputs) : last.status();
    if (last.ok()) logits = *std::move(last);
  }
  if (!status.ok()) {
    // The one that came last gives way: without it the others may go on.
    --active_;
    Fail(std::exchange(group.sequences.back(), nullptr), status);
    return DropEmptyGroups();
  }
  const size_t vocabulary = static_cast<size_t>(logits.shape()[1]);
  for (size_t row = 0; row < count; ++row) {
    const std::span<float> own(logits.mutable_data<float>() + row * vocabulary, vocabulary);
    const auto finish = Write(*group.sequences[row], own);
    if (!finish) continue;
    --active_;
    Finish(std::exchange(group.sequences[row], nullptr), *finish);
  }
  DropEmptyGroups();
}

Result<Tensor> Generator::LastLogits(const std::vector<Value>& outputs, int64_t rows) const {
  const Value& value = outputs[plan_->decoder.logits];
  const Shape shape = value.is_tensor() ? value.tensor().shape() : Shape();
  if (shape.rank() != 3 || shape[0] != rows || shape[1] < 1 || shape[2] < 1) {
    return Internal(StrCat("the logits have shape ", shape.ToString(), ", expected [", rows,
                           ", tokens, vocabulary]"));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor last, Tensor::Create(DataType::kFloat, Shape{rows, shape[2]}));
  for (int64_t row = 0; row < rows; ++row) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor floats, LogitsOf(value.tensor(), (row + 1) * shape[1] - 1));
    std::copy_n(floats.data<float>(), shape[2], last.mutable_data<float>() + row * shape[2]);
  }
  return last;
}

std::optional<FinishReason> Generator::Write(Sequence& sequence, std::span<float> logits) {
  const GenerationRequest& request = sequence.request;
  const auto now = Clock::now();
  metrics_->ObserveToken(
      sequence.generated == 0,
      now - (sequence.generated == 0 ? sequence.submitted : sequence.last_token));
  sequence.last_token = now;
  // The choice changes the logits.
  const std::vector<float> before =
      request.likeliest ? std::vector<float>(logits.begin(), logits.end()) : std::vector<float>();
  const int64_t token = sequence.sampler.Next(logits);
  ++sequence.generated;
  sequence.next_token = token;
  const auto& stops = plan_->stop_tokens;
  if (!request.ignores_stop_tokens && std::binary_search(stops.begin(), stops.end(), token)) {
    Give(sequence, sequence.text.Finish(), true);
    return FinishReason::kStop;
  }
  if (request.likeliest) {
    sequence.scored.push_back(ScoreToken(before, token, *request.likeliest));
  }
  Give(sequence, sequence.text.Add(token));
  if (sequence.text.stopped()) {
    Give(sequence, {}, true);
    return FinishReason::kStop;
  }
  const int64_t all = static_cast<int64_t>(request.prompt.size()) + sequence.generated;
  const bool is_full = (request.max_tokens && sequence.generated >= *request.max_tokens) ||
                       all >= plan_->context_length;
  if (!is_full) return std::nullopt;
  Give(sequence, sequence.text.Finish(), true);
  return FinishReason::kLength;
}

// Tokens come with the text that they write; what they leave open comes later.
void Generator::Give(Sequence& sequence, std::string text, bool is_last) {
  if (text.empty() && (!is_last || sequence.scored.empty())) return;
  sequence.request.on_text({std::move(text), std::exchange(sequence.scored, {})});
}

void Generator::Fail(SequencePtr sequence, Status status) {
  metrics_->CountTokens(static_cast<int64_t>(sequence->request.prompt.size()), sequence->generated);
  sequence->request.done(std::move(status));
}

void Generator::Finish(SequencePtr sequence, FinishReason reason) {
  GenerationResult result;
  result.finish = reason;
  result.prompt_tokens = static_cast<int64_t>(sequence->request.prompt.size());
  result.generated_tokens = sequence->generated;
  result.queue_time = sequence->begun - sequence->submitted;
  result.compute_time = Clock::now() - sequence->begun;
  metrics_->CountTokens(result.prompt_tokens, result.generated_tokens);
  sequence->request.done(result);
}

}  // namespace onnxd
