// Generator: writes the texts of all requests of a model, token after token.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/batching/scheduler.h"
#include "server/generation/decoder_rows.h"
#include "server/generation/generation_plan.h"
#include "server/generation/sampling.h"
#include "server/generation/text_stream.h"
#include "server/generation/token_scores.h"

namespace onnxd {

enum class FinishReason { kStop, kLength };

struct GenerationResult {
  FinishReason finish = FinishReason::kStop;
  int64_t prompt_tokens = 0, generated_tokens = 0;
  // Until its prompt was begun; from then on.
  std::chrono::nanoseconds queue_time{0}, compute_time{0};
};

// Of a text that is written.
struct GenerationPiece {
  std::string text;
  std::vector<TokenScores> tokens;  // of the text, and of what is still to come of it
};

struct GenerationRequest {
  std::vector<int64_t> prompt;
  SamplingParameters sampling;
  std::optional<int64_t> max_tokens;  // not said: until the context is full
  std::vector<std::string> stops;     // texts that end the answer, and are no part of it
  bool ignores_stop_tokens = false;
  bool skips_special_tokens = true;
  std::optional<int64_t> likeliest;  // as of ScoreToken, for each token; not said: pieces have none
  int64_t priority = 0;
  std::optional<SteadyTime> deadline;
  std::shared_ptr<std::atomic<bool>> cancelled;  // may be null
  std::shared_ptr<const ModelSteps> steps;       // as of BatchRequest
  // One after another, from any thread; none after `done`. Must not throw.
  // May be null; else the tokens of the prompt but for the first one, in order, before any text.
  std::function<void(std::vector<TokenScores> tokens)> on_prompt;
  std::function<void(GenerationPiece piece)> on_text;  // never without anything
  std::function<void(Result<GenerationResult>)> done;
};

// Any thread. Sequences whose prompts were computed take their steps together, one run for all, as
// the plan lets them be joined; others are begun between two steps, `prefill_tokens` of their
// prompts at most, so that neither waits for the other's end. One run is under way at a time, and
// none while nobody asks.
class Generator : public std::enable_shared_from_this<Generator> {
 public:
  // `scheduled` runs the session, and must not run it on the thread that submits. `keep` lives as
  // long as a request does. `memory`: as of DecoderRows. `on_idle`: called when no text is left.
  Generator(std::shared_ptr<const GenerationPlan> plan, Scheduler& scheduler,
            std::shared_ptr<ScheduledModel> scheduled, StateMemory memory,
            std::function<void()> on_idle, std::shared_ptr<ModelMetrics> metrics);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // `done` gets kInvalidArgument for a prompt without tokens, or with no room behind it;
  // kUnimplemented where `on_prompt` wants what the model does not say, of its last tokens alone;
  // kUnavailable beyond `queue_requests`; kDeadlineExceeded, kCancelled, and what runs return.
  void Submit(GenerationRequest request, std::shared_ptr<const void> keep);

  const GenerationPlan& plan() const { return *plan_; }
  // Texts are written, or wait for it.
  bool is_busy() const {
    std::lock_guard lock(mutex_);
    return busy_;
  }

 private:
  struct Sequence;
  using SequencePtr = std::unique_ptr<Sequence>;
  struct Group;

  Status Check(const GenerationRequest& request) const;

  // All below belongs to the one who has the turn: who made busy_ true, and then each run's end.
  void Advance();
  // There is none; it goes on when a run ends; it is done, and there may be more.
  enum class Work { kNone, kUnderWay, kDone };
  Work Begin();
  Work Run(BatchRequest run, std::function<void(BatchResult)> on_end);
  bool IsLost(const Sequence& sequence) const;
  void DropLost();
  void TakeWaiting();
  void NoteSequences();
  Work RunPrompt();
  void OnPrompt(BatchResult result, size_t tokens);
  Status ScorePrompt(const Sequence& sequence, const Value& logits, size_t begin, size_t tokens);
  void Regroup();
  void Regroup(Group& group, SequencePtr only);
  void FailAll(std::vector<SequencePtr>& sequences, const Status& status);
  Work RunStep();
  void OnStep(BatchResult result);
  void DropEmptyGroups();
  // Writes the next token; why it was the last.
  std::optional<FinishReason> Write(Sequence& sequence, std::span<float> logits);
  void Give(Sequence& sequence, std::string text, bool is_last = false);
  void Finish(SequencePtr sequence, FinishReason reason);
  void Fail(SequencePtr sequence, Status status);
  BatchRequest RunOf(std::vector<Value> inputs, const Sequence& sequence) const;
  // [rows, vocabulary], of the last token of each row.
  Result<Tensor> LastLogits(const std::vector<Value>& outputs, int64_t rows) const;

  const std::shared_ptr<const GenerationPlan> plan_;
  Scheduler& scheduler_;
  const std::shared_ptr<ScheduledModel> scheduled_;
  const StateMemory memory_;
  const std::function<void()> on_idle_;
  const std::shared_ptr<ModelMetrics> metrics_;
  mutable std::mutex mutex_;
  std::deque<SequencePtr> waiting_;   // guarded by mutex_
  bool busy_ = false;                 // guarded by mutex_
  SequencePtr prompting_;             // whose prompt is computed; null: none
  SteadyTime looked_{};               // for those that wait and are lost
  int64_t prompted_tokens_ = 0;       // since the last step
  std::vector<SequencePtr> joining_;  // whose prompts were, and that take the next step
  std::vector<std::unique_ptr<Group>> groups_;
  size_t next_group_ = 0;
  int64_t active_ = 0;  // sequences in groups, and that join
};

}  // namespace onnxd
