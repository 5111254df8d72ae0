#include "server/service/text_generation.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <mutex>
#include <utility>

#include "runtime/base/str_cat.h"
#include "server/generation/generator.h"
#include "server/generation/prompt_tokens.h"

namespace onnxd {
namespace {

constexpr int64_t kMostTexts = 64;
constexpr int64_t kMostScores = 1 << 20;  // of a request
constexpr int64_t kLeastBytes = 1 << 16, kMostBytesOfToken = 256;

SamplingParameters SamplingOf(const GenerationOptions& options, SamplingParameters sampling) {
  const auto set = [](auto& field, const auto& said) { field = said.value_or(field); };
  set(sampling.temperature, options.temperature);
  set(sampling.top_p, options.top_p);
  set(sampling.min_p, options.min_p);
  set(sampling.top_k, options.top_k);
  set(sampling.repetition_penalty, options.repetition_penalty);
  set(sampling.presence_penalty, options.presence_penalty);
  set(sampling.frequency_penalty, options.frequency_penalty);
  sampling.logit_bias = options.logit_bias;
  sampling.seed = options.seed;
  return sampling;
}

std::vector<ScoredToken> WithTexts(const TokenDecoder& decoder,
                                   const std::vector<TokenScores>& tokens) {
  std::vector<ScoredToken> out;
  const auto written = [&](const TokenScore& score) {
    return LikelyToken{decoder.BytesOf(score.token), score.log_probability};
  };
  for (const TokenScores& scores : tokens) {
    ScoredToken& token = out.emplace_back();
    token.token = written(scores.own);
    for (const TokenScore& score : scores.likeliest) token.likeliest.push_back(written(score));
  }
  return out;
}

// All texts of one request, until the last of them has its answer.
class Writing : public std::enable_shared_from_this<Writing> {
 public:
  Writing(Scheduler& scheduler, std::shared_ptr<const ModelVersion> version, TextsAsked asked,
          std::function<void(Result<TextsWritten>)> done)
      : scheduler_(scheduler),
        version_(std::move(version)),
        asked_(std::move(asked)),
        done_(std::move(done)),
        texts_(static_cast<size_t>(asked_.texts.ElementCount())),
        echoes_(texts_.size()),
        left_(texts_.size()) {
    written_.counts.cut.resize(texts_.size());
    if (asked_.options.likeliest) written_.counts.tokens.resize(texts_.size());
  }

  void Start() {
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (!asked_.options.prompt_tokens.empty()) {
        Write(i, asked_.options.prompt_tokens[i], {});
      } else {
        Tokenize(i);
      }
    }
  }

 private:
  void Tokenize(size_t i) {
    BatchRequest request;
    request.inputs = PromptOf(asked_.texts.elements<std::string>()[i], asked_.options.is_chat);
    request.deadline = asked_.deadline;
    request.priority = asked_.priority;
    request.cancelled = asked_.cancelled;
    request.steps = asked_.steps;
    request.done = [self = shared_from_this(), i](BatchResult result) {
      if (!result.outputs.ok()) return self->Finish(i, result.outputs.status());
      const auto tokens = (*result.outputs)[0].tensor().elements<int64_t>();
      self->Write(i, {tokens.begin(), tokens.end()}, result.queue_time + result.compute_time);
    };
    scheduler_.Submit(version_->tokenizing, std::move(request));
  }

  const TokenDecoder& decoder() const { return *version_->generator->plan().token_decoder; }
  bool streams() const { return asked_.options.on_text != nullptr; }

  std::string PromptText(size_t i) const {
    const GenerationOptions& options = asked_.options;
    if (options.prompt_tokens.empty()) return asked_.texts.elements<std::string>()[i];
    return decoder().Decode(options.prompt_tokens[i], options.skips_special_tokens);
  }

  // Of all that the request keeps until it is answered.
  Status CheckScores(int64_t prompt_tokens) const {
    const GenerationOptions& options = asked_.options;
    if (!options.likeliest) return Status::Ok();
    const int64_t context = version_->generator->plan().context_length;
    const int64_t written = streams() ? 0 : std::min(options.max_tokens.value_or(context), context);
    const int64_t scored = written + (options.echoes_prompt ? prompt_tokens : 0);
    const int64_t scores = static_cast<int64_t>(texts_.size()) * (*options.likeliest + 1) * scored;
    if (scores <= kMostScores) return Status::Ok();
    return InvalidArgument(StrCat("up to ", scores, " log probabilities, of which ", kMostScores,
                                  " are the most: max_tokens, or fewer of them a token"));
  }

  void Give(size_t i, TextPiece piece) {
    if (!echoes_[i].empty()) piece.text.insert(0, std::exchange(echoes_[i], {}));
    if (streams()) {
      piece.answer = i;
      return asked_.options.on_text(std::move(piece));
    }
    texts_[i] += piece.text;
    if (piece.tokens.empty()) return;
    std::move(piece.tokens.begin(), piece.tokens.end(),
              std::back_inserter(written_.counts.tokens[i]));
  }

  // `tokens`: of the prompt, but for its first one, a part of them.
  void GivePrompt(size_t i, std::optional<int64_t> first, const std::vector<TokenScores>& tokens) {
    TextPiece piece;
    if (first) {
      const float none = std::numeric_limits<float>::quiet_NaN();
      piece.tokens.push_back({{decoder().BytesOf(*first), none}, {}});
    }
    for (ScoredToken& token : WithTexts(decoder(), tokens)) {
      piece.tokens.push_back(std::move(token));
    }
    Give(i, std::move(piece));
  }

  void Write(size_t i, std::vector<int64_t> prompt, std::chrono::nanoseconds waited) {
    const GenerationOptions& options = asked_.options;
    if (options.echoes_prompt) echoes_[i] = PromptText(i);
    if (const Status scores = CheckScores(static_cast<int64_t>(prompt.size())); !scores.ok()) {
      return Finish(i, scores);
    }
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.sampling = SamplingOf(options, version_->generator->plan().sampling);
    if (request.sampling.seed) *request.sampling.seed += i;  // equal prompts, other answers
    request.max_tokens = options.max_tokens;
    request.likeliest = options.likeliest;
    request.stops = options.stops;
    request.ignores_stop_tokens = options.ignores_stop_tokens;
    request.skips_special_tokens = options.skips_special_tokens;
    request.priority = asked_.priority;
    request.deadline = asked_.deadline;
    request.cancelled = asked_.cancelled;
    request.steps = asked_.steps;
    if (options.likeliest && options.echoes_prompt && !request.prompt.empty()) {
      request.on_prompt = [self = shared_from_this(), i, first = std::optional(request.prompt[0])](
                              const std::vector<TokenScores>& tokens) mutable {
        self->GivePrompt(i, std::exchange(first, std::nullopt), tokens);
      };
    }
    request.on_text = [self = shared_from_this(), i](GenerationPiece piece) {
      TextPiece given;
      given.text = std::move(piece.text);
      given.tokens = WithTexts(self->decoder(), piece.tokens);
      self->Give(i, std::move(given));
    };
    request.done = [self = shared_from_this(), i, waited](Result<GenerationResult> result) {
      if (result.ok()) {
        result->queue_time += waited;
        TextPiece end;
        end.end = result->finish == FinishReason::kLength ? TextPiece::End::kLength
                                                          : TextPiece::End::kStop;
        self->Give(i, std::move(end));
      }
      self->Finish(i, result);
    };
    version_->generator->Submit(std::move(request), version_);
  }

  void Finish(size_t i, const Result<GenerationResult>& result) {
    {
      std::lock_guard lock(mutex_);
      if (!result.ok()) {
        if (failure_.ok()) failure_ = result.status();
      } else {
        GeneratedTexts& counts = written_.counts;
        counts.cut[i] = result->finish == FinishReason::kLength;
        counts.prompt_tokens += result->prompt_tokens;
        counts.generated_tokens += result->generated_tokens;
        written_.queue_time = std::max(written_.queue_time, result->queue_time);
        written_.compute_time = std::max(written_.compute_time, result->compute_time);
      }
      if (--left_ > 0) return;
    }
    if (!failure_.ok()) return done_(failure_);
    auto texts = Tensor::Create(DataType::kString, asked_.texts.shape());
    if (!texts.ok()) return done_(texts.status());
    std::move(texts_.begin(), texts_.end(), texts->mutable_data<std::string>());
    written_.texts = *std::move(texts);
    done_(std::move(written_));
  }

  Scheduler& scheduler_;
  const std::shared_ptr<const ModelVersion> version_;
  const TextsAsked asked_;
  const std::function<void(Result<TextsWritten>)> done_;
  // Each is written by its own sequence, as are counts.tokens.
  std::vector<std::string> texts_;
  std::vector<std::string> echoes_;  // that the next piece begins with
  std::mutex mutex_;
  size_t left_;           // guarded by mutex_
  Status failure_;        // guarded by mutex_
  TextsWritten written_;  // guarded by mutex_
};

}  // namespace

void GenerateTexts(Scheduler& scheduler, std::shared_ptr<const ModelVersion> version,
                   TextsAsked asked, std::function<void(Result<TextsWritten>)> done) {
  const int64_t count = asked.texts.ElementCount();
  if (count < 1 || count > kMostTexts) {
    return done(InvalidArgument(StrCat(count, " texts, expected 1 to ", kMostTexts)));
  }
  const int64_t least = asked.options.echoes_prompt ? 0 : 1;
  if (asked.options.max_tokens.value_or(least) < least) {
    return done(InvalidArgument(StrCat("max_tokens is ", *asked.options.max_tokens)));
  }
  const auto& tokens = asked.options.prompt_tokens;
  if (!tokens.empty() && static_cast<int64_t>(tokens.size()) != count) {
    return done(Internal(StrCat(tokens.size(), " prompts of tokens for ", count, " texts")));
  }
  // More would cost memory and time only to be refused.
  const int64_t context = version->generator->plan().context_length;
  for (const std::string& text : asked.texts.elements<std::string>()) {
    if (static_cast<int64_t>(text.size()) <= kLeastBytes + kMostBytesOfToken * context) continue;
    return done(InvalidArgument(StrCat("a prompt of ", text.size(), " bytes, more than the ",
                                       context, " tokens of the context can be")));
  }
  std::make_shared<Writing>(scheduler, std::move(version), std::move(asked), std::move(done))
      ->Start();
}

}  // namespace onnxd
