// com.microsoft GreedySearch, Sampling, BeamSearch and WhisperBeamSearch: the loop over tokens that
// their subgraphs are decoded in. Source: onnxruntime's ContribOperators document; beams are scored
// as in transformers' BeamSearchScorer.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "runtime/base/str_cat.h"
#include "runtime/session/logits_processing.h"
#include "runtime/session/token_model.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

// Positions of the operators' inputs; -1: the operator has none.
struct InputPlaces {
  int min_length, beams, returned, length_penalty, repetition_penalty, vocabulary_mask, prefix_mask,
      attention_mask, decoder_ids, processor, presence_mask, seed, temperature;
};

constexpr InputPlaces kBeamInputs = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, -1, -1, 14};
constexpr InputPlaces kGreedyInputs = {2, -1, -1, -1, 3, 4, 5, 6, -1, -1, -1, -1, -1};
constexpr InputPlaces kSamplingInputs = {2, -1, -1, -1, 3, 4, 5, 6, -1, -1, 7, 8, -1};

// One call's inputs and the node's attributes.
struct Search {
  int64_t batch = 0, length = 0, max_length = 0, beams = 1, returned = 1;
  int64_t eos = 0, pad = 0, vocabulary = 0;
  float length_penalty = 1;
  bool early_stopping = false;
  LogitsRules rules;
  TokenRows start;                  // [batch, length]: what the decoder begins with
  std::vector<int32_t> mask, real;  // of `start`: given, and by the padding token
  Value encoder_input, encoder_mask;
};

const Tensor* TensorAt(std::span<const Value> inputs, int place) {
  if (place < 0 || place >= static_cast<int>(inputs.size())) return nullptr;
  const Value& value = inputs[static_cast<size_t>(place)];
  return value.is_tensor() ? &value.tensor() : nullptr;
}

template <typename T>
Result<std::vector<T>> ElementsOf(const Tensor* tensor) {
  if (tensor == nullptr) return std::vector<T>();
  ONNXD_ASSIGN_OR_RETURN(const Tensor converted, Converted(*tensor, kDataTypeOf<T>));
  const auto elements = converted.elements<T>();
  return std::vector<T>(elements.begin(), elements.end());
}

template <typename T>
Result<T> OneOr(std::span<const Value> inputs, int place, T fallback) {
  ONNXD_ASSIGN_OR_RETURN(const std::vector<T> elements, ElementsOf<T>(TensorAt(inputs, place)));
  return elements.empty() ? fallback : elements[0];
}

Result<LogitsRules> RulesOf(const Attributes& a, std::span<const Value> inputs,
                            const InputPlaces& at) {
  LogitsRules rules;
  rules.no_repeat_ngram_size = a.Int("no_repeat_ngram_size", 0);
  rules.eos_token = a.Int("eos_token_id", 0);
  ONNXD_ASSIGN_OR_RETURN(rules.repetition_penalty, OneOr<float>(inputs, at.repetition_penalty, 1));
  ONNXD_ASSIGN_OR_RETURN(rules.min_length, OneOr<int32_t>(inputs, at.min_length, 0));
  ONNXD_ASSIGN_OR_RETURN(rules.vocabulary_mask,
                         ElementsOf<int32_t>(TensorAt(inputs, at.vocabulary_mask)));
  ONNXD_ASSIGN_OR_RETURN(rules.prefix_mask, ElementsOf<int32_t>(TensorAt(inputs, at.prefix_mask)));
  ONNXD_ASSIGN_OR_RETURN(rules.presence_mask,
                         ElementsOf<int32_t>(TensorAt(inputs, at.presence_mask)));
  ONNXD_ASSIGN_OR_RETURN(rules.temperature,
                         OneOr<float>(inputs, at.temperature, a.Float("temperature", 1)));
  rules.presence_penalty = a.Float("presence_penalty", 0);
  if (!(rules.repetition_penalty > 0)) return InvalidArgument("repetition_penalty is not positive");
  return rules;
}

// What the decoder begins with: the prompt, or behind an encoder the start token or those given.
Status StartOf(const Attributes& a, std::span<const Value> inputs, const InputPlaces& at,
               bool encoded, Search& s) {
  const Tensor* prompt = TensorAt(inputs, 0);
  const Tensor* given = TensorAt(inputs, at.decoder_ids);
  const Tensor* tokens = encoded ? given : prompt;
  if (prompt == nullptr || prompt->shape().rank() < 2 || prompt->shape()[0] < 1) {
    return InvalidArgument("input_ids needs rows");
  }
  s.batch = prompt->shape()[0];
  if (tokens == nullptr) {
    s.start = {s.batch, 1, std::vector<int32_t>(static_cast<size_t>(s.batch))};
    std::fill(s.start.tokens.begin(), s.start.tokens.end(),
              static_cast<int32_t>(a.Int("decoder_start_token_id", 0)));
  } else {
    const Shape& shape = tokens->shape();
    if (shape.rank() != 2 || shape[0] != s.batch || shape[1] < 1) {
      return InvalidArgument(StrCat("tokens of shape ", shape.ToString()));
    }
    s.start.rows = s.batch;
    s.start.length = shape[1];
    ONNXD_ASSIGN_OR_RETURN(s.start.tokens, ElementsOf<int32_t>(tokens));
  }
  s.length = s.start.length;
  // Behind an encoder the mask is that of its tokens.
  const Tensor* mask = TensorAt(inputs, at.attention_mask);
  if (mask != nullptr && !(mask->shape() == prompt->shape())) {
    return InvalidArgument("attention_mask does not fit");
  }
  if (encoded) s.encoder_input = inputs[0];
  if (prompt->type() != DataType::kInt32) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(s.real, ElementsOf<int32_t>(prompt));
  for (int32_t& token : s.real) token = token == s.pad ? 0 : 1;
  s.mask = s.real;
  if (mask != nullptr) {
    ONNXD_ASSIGN_OR_RETURN(s.mask, ElementsOf<int32_t>(mask));
  }
  if (!encoded) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(DataType::kInt32, prompt->shape()));
  std::copy(s.mask.begin(), s.mask.end(), tensor.mutable_data<int32_t>());
  s.encoder_mask = Value(std::move(tensor));
  return Status::Ok();
}

Result<Search> SearchOf(const Attributes& a, std::span<const Value> inputs, const InputPlaces& at,
                        bool encoded) {
  Search s;
  s.eos = a.Int("eos_token_id", 0);
  s.pad = a.Int("pad_token_id", 0);
  s.vocabulary = a.Int("vocab_size", 0);
  s.early_stopping = a.Int("early_stopping", 0) != 0;
  ONNXD_RETURN_IF_ERROR(StartOf(a, inputs, at, encoded, s));
  ONNXD_ASSIGN_OR_RETURN(s.rules, RulesOf(a, inputs, at));
  ONNXD_ASSIGN_OR_RETURN(s.max_length, OneOr<int32_t>(inputs, 1, 0));
  ONNXD_ASSIGN_OR_RETURN(s.beams, OneOr<int32_t>(inputs, at.beams, 1));
  ONNXD_ASSIGN_OR_RETURN(s.returned, OneOr<int32_t>(inputs, at.returned, 1));
  ONNXD_ASSIGN_OR_RETURN(s.length_penalty, OneOr<float>(inputs, at.length_penalty, 1));
  constexpr int64_t kMostBeams = 128, kMostTokens = 1 << 20;
  if (s.beams < 1 || s.beams > kMostBeams || s.returned < 1 || s.returned > s.beams) {
    return InvalidArgument(StrCat("num_beams ", s.beams, ", num_return_sequences ", s.returned));
  }
  if (s.max_length < s.length || s.max_length > kMostTokens) {
    return InvalidArgument(StrCat("max_length ", s.max_length, " for ", s.length, " tokens"));
  }
  ONNXD_ASSIGN_OR_RETURN(const int32_t processor, OneOr<int32_t>(inputs, at.processor, 0));
  if (processor != 0) return Unimplemented(StrCat("logits_processor ", processor));
  return s;
}

// Every row `copies` times.
TokenRows Repeated(const TokenRows& from, int64_t copies) {
  TokenRows to{from.rows * copies, from.length, {}};
  for (int64_t row = 0; row < to.rows; ++row) {
    const auto begin = from.tokens.begin() + row / copies * from.length;
    to.tokens.insert(to.tokens.end(), begin, begin + from.length);
  }
  return to;
}

// The sequences of all rows, and the scores of the tokens that may follow.
class Decoding {
 public:
  Decoding(const TokenGraphs& graphs, const Search& search, int64_t copies,
           std::span<const Value> captures, const RunOptions& options)
      : search_(search),
        copies_(copies),
        model_(graphs, captures, options),
        encoded_(graphs.encoder.has_value()) {
    const TokenRows rows = Repeated(search.start, copies);
    for (int64_t row = 0; row < rows.rows; ++row) {
      const auto begin = rows.tokens.begin() + row * rows.length;
      sequences_.emplace_back(begin, begin + rows.length);
    }
  }

  int64_t rows() const { return static_cast<int64_t>(sequences_.size()); }
  int64_t length() const { return static_cast<int64_t>(sequences_[0].size()); }
  int64_t width() const { return width_; }
  const std::vector<int32_t>& sequence(int64_t row) const {
    return sequences_[static_cast<size_t>(row)];
  }

  // [rows, width()], with the vocabulary's rules applied; as logarithms of probabilities if asked.
  Result<std::vector<float>> Scores(bool as_logarithms) {
    ONNXD_ASSIGN_OR_RETURN(std::vector<float> logits, Logits());
    const int64_t stride = static_cast<int64_t>(logits.size()) / rows();
    if (stride == 0 || stride * rows() != static_cast<int64_t>(logits.size())) {
      return InvalidArgument(StrCat("the decoder gives no logits for ", rows(), " rows"));
    }
    width_ = search_.vocabulary > 0 ? std::min(search_.vocabulary, stride) : stride;
    std::vector<float> scores;
    for (int64_t row = 0; row < rows(); ++row) {
      const auto begin = logits.begin() + row * stride;
      scores.insert(scores.end(), begin, begin + width_);
      const auto own = std::span(scores).last(static_cast<size_t>(width_));
      if (as_logarithms) LogSoftmax(own);
      ProcessLogits(search_.rules, sequence(row), row / copies_, first_, own);
    }
    first_ = false;
    return scores;
  }

  // Row i goes on as rows[i] with the token.
  Status Append(const std::vector<int64_t>& rows, const std::vector<int32_t>& tokens) {
    std::vector<std::vector<int32_t>> next;
    for (size_t i = 0; i < rows.size(); ++i) {
      next.push_back(sequences_[static_cast<size_t>(rows[i])]);
      next.back().push_back(tokens[i]);
    }
    sequences_ = std::move(next);
    last_ = tokens;
    return model_.Reorder(rows);
  }

 private:
  Result<std::vector<float>> Logits() {
    if (!first_) return model_.Next({rows(), 1, last_});
    if (encoded_) {
      ONNXD_RETURN_IF_ERROR(
          model_.Encode(search_.encoder_input, search_.encoder_mask, search_.start, copies_));
      if (auto logits = model_.TakeFirstLogits()) return std::move(*logits);
    }
    if (!encoded_) {
      const auto repeated = [&](const std::vector<int32_t>& flags) {
        return Repeated({search_.batch, search_.length, flags}, copies_).tokens;
      };
      model_.Mask(repeated(search_.mask), repeated(search_.real), rows());
    }
    return model_.Next(Repeated(search_.start, copies_));
  }

  const Search& search_;
  int64_t copies_, width_ = 0;
  TokenModel model_;
  bool encoded_, first_ = true;
  std::vector<std::vector<int32_t>> sequences_;
  std::vector<int32_t> last_;
};

Result<Tensor> PaddedSequences(const Search& s, const std::vector<std::vector<int32_t>>& sequences,
                               const Shape& shape) {
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kInt32, shape));
  auto* to = out.mutable_data<int32_t>();
  std::fill_n(to, out.ElementCount(), static_cast<int32_t>(s.pad));
  for (size_t i = 0; i < sequences.size(); ++i) {
    const size_t count = std::min(sequences[i].size(), static_cast<size_t>(s.max_length));
    std::copy_n(sequences[i].begin(), count, to + static_cast<int64_t>(i) * s.max_length);
  }
  return out;
}

// Chooses the next token of a row from its scores.
using ChooseToken = std::function<int32_t(std::span<float> scores)>;

Result<Values> OneSequence(const TokenGraphs& graphs, const Search& s,
                           std::span<const Value> captures, const RunOptions& options,
                           const ChooseToken& choose) {
  Decoding decoding(graphs, s, 1, captures, options);
  std::vector<char> ended(static_cast<size_t>(s.batch), 0);
  std::vector<int64_t> same(static_cast<size_t>(s.batch));
  std::iota(same.begin(), same.end(), 0);
  while (decoding.length() < s.max_length) {
    ONNXD_ASSIGN_OR_RETURN(std::vector<float> scores, decoding.Scores(false));
    std::vector<int32_t> tokens;
    for (int64_t row = 0; row < s.batch; ++row) {
      const auto width = static_cast<size_t>(decoding.width());
      const int32_t token =
          choose(std::span(scores).subspan(static_cast<size_t>(row) * width, width));
      char& end = ended[static_cast<size_t>(row)];
      end = end != 0 || token == s.eos;
      tokens.push_back(end != 0 ? static_cast<int32_t>(s.pad) : token);
    }
    ONNXD_RETURN_IF_ERROR(decoding.Append(same, tokens));
    if (std::all_of(ended.begin(), ended.end(), [](char end) { return end != 0; })) break;
  }
  std::vector<std::vector<int32_t>> sequences;
  for (int64_t row = 0; row < s.batch; ++row) sequences.push_back(decoding.sequence(row));
  ONNXD_ASSIGN_OR_RETURN(Tensor out, PaddedSequences(s, sequences, Shape{s.batch, s.max_length}));
  return Values{std::move(out)};
}

int32_t MostLikely(std::span<float> scores) {
  return static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

// Draws from the fewest tokens whose probabilities sum up to top_p, `least` of them at least.
int32_t Draw(std::span<float> scores, float top_p, int64_t least, std::mt19937& random) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](int32_t token) { return scores[static_cast<size_t>(token)]; };
  const bool ordered =
      std::none_of(scores.begin(), scores.end(), [](float x) { return std::isnan(x); });
  if (!ordered) return 0;
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return score(a) > score(b); });
  if (!std::isfinite(score(order[0]))) return order[0];
  std::vector<double> weights;
  for (const int32_t token : order) {
    weights.push_back(std::exp(static_cast<double>(score(token) - score(order[0]))));
  }
  const double wanted =
      static_cast<double>(top_p) * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  size_t kept = 0;
  while (kept < weights.size() && (sum <= wanted || static_cast<int64_t>(kept) < least)) {
    sum += weights[kept++];
  }
  weights.resize(kept);
  std::discrete_distribution<size_t> distribution(weights.begin(), weights.end());
  return order[distribution(random)];
}

// The best finished sequences of one batch entry.
class Hypotheses {
 public:
  struct Entry {
    std::vector<int32_t> tokens;
    float score;
  };

  void Add(const Search& s, const std::vector<int32_t>& tokens, float sum) {
    const float score = Score(s, sum, static_cast<int64_t>(tokens.size()));
    const auto place = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return score > entry.score; });
    entries_.insert(place, {tokens, score});
    if (static_cast<int64_t>(entries_.size()) > s.beams) entries_.pop_back();
  }

  // Whether nothing that is still open can be better. `best`: the largest sum of an open beam.
  bool Done(const Search& s, float best, int64_t length) const {
    if (static_cast<int64_t>(entries_.size()) < s.beams) return false;
    return s.early_stopping || entries_.back().score >= Score(s, best, length);
  }

  const std::vector<Entry>& entries() const { return entries_; }

 private:
  static float Score(const Search& s, float sum, int64_t length) {
    return sum / std::pow(static_cast<float>(length), s.length_penalty);
  }

  std::vector<Entry> entries_;  // best first
};

struct Candidate {
  int64_t beam;
  int32_t token;
  float score;
};

// The best `count` of scores[beams, width], best first; equal ones in their order.
std::vector<Candidate> BestOf(std::span<const float> scores, int64_t width, int64_t count) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  // NaN compares with nothing, which sorting does not bear.
  const auto key = [&](int64_t i) {
    const float score = scores[static_cast<size_t>(i)];
    return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
  };
  const auto end = order.begin() + std::min<int64_t>(count, static_cast<int64_t>(order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](int64_t a, int64_t b) {
    return key(a) != key(b) ? key(a) > key(b) : a < b;
  });
  std::vector<Candidate> best;
  for (auto i = order.begin(); i != end; ++i) {
    best.push_back({*i / width, static_cast<int32_t>(*i % width), key(*i)});
  }
  return best;
}

class BeamSearcher {
 public:
  BeamSearcher(const TokenGraphs& graphs, const Search& search, std::span<const Value> captures,
               const RunOptions& options)
      : search_(search),
        decoding_(graphs, search, search.beams, captures, options),
        hypotheses_(static_cast<size_t>(search.batch)),
        done_(static_cast<size_t>(search.batch), 0) {
    // All beams begin alike: only the first counts in the first step.
    constexpr float kNever = -1e9f;
    sums_.assign(static_cast<size_t>(search.batch * search.beams), kNever);
    for (int64_t b = 0; b < search.batch; ++b) sums_[static_cast<size_t>(b * search.beams)] = 0;
  }

  Result<Values> Run() {
    while (decoding_.length() < search_.max_length) {
      ONNXD_ASSIGN_OR_RETURN(const std::vector<float> scores, decoding_.Scores(true));
      ONNXD_RETURN_IF_ERROR(Step(scores));
      if (std::all_of(done_.begin(), done_.end(), [](char done) { return done != 0; })) break;
    }
    return Results();
  }

 private:
  Status Step(std::span<const float> scores) {
    const int64_t beams = search_.beams, width = decoding_.width();
    std::vector<int64_t> rows;
    std::vector<int32_t> tokens;
    std::vector<float> sums;
    for (int64_t b = 0; b < search_.batch; ++b) {
      std::vector<float> own;
      for (int64_t i = b * beams * width; i < (b + 1) * beams * width; ++i) {
        own.push_back(scores[static_cast<size_t>(i)] + sums_[static_cast<size_t>(i / width)]);
      }
      const auto best = BestOf(own, width, 2 * beams);
      const size_t wanted = static_cast<size_t>((b + 1) * beams);
      if (done_[static_cast<size_t>(b)] == 0) Choose(b, best, rows, tokens, sums);
      while (rows.size() < wanted) {  // the entry is done, or the vocabulary is tiny
        rows.push_back(b * beams);
        tokens.push_back(static_cast<int32_t>(search_.pad));
        sums.push_back(0);
      }
    }
    sums_ = std::move(sums);
    return decoding_.Append(rows, tokens);
  }

  // Beams that go on; ended ones become hypotheses.
  void Choose(int64_t b, const std::vector<Candidate>& best, std::vector<int64_t>& rows,
              std::vector<int32_t>& tokens, std::vector<float>& sums) {
    Hypotheses& finished = hypotheses_[static_cast<size_t>(b)];
    int64_t chosen = 0;
    for (size_t rank = 0; rank < best.size() && chosen < search_.beams; ++rank) {
      const Candidate& candidate = best[rank];
      const int64_t row = b * search_.beams + candidate.beam;
      if (candidate.token == search_.eos) {
        if (static_cast<int64_t>(rank) >= search_.beams) continue;
        finished.Add(search_, decoding_.sequence(row), candidate.score);
        continue;
      }
      rows.push_back(row);
      tokens.push_back(candidate.token);
      sums.push_back(candidate.score);
      ++chosen;
    }
    if (!best.empty() && finished.Done(search_, best[0].score, decoding_.length())) {
      done_[static_cast<size_t>(b)] = 1;
    }
  }

  Result<Values> Results() {
    std::vector<std::vector<int32_t>> sequences;
    std::vector<float> scores;
    for (int64_t b = 0; b < search_.batch; ++b) {
      Hypotheses& finished = hypotheses_[static_cast<size_t>(b)];
      for (int64_t i = b * search_.beams;
           done_[static_cast<size_t>(b)] == 0 && i < (b + 1) * search_.beams; ++i) {
        finished.Add(search_, decoding_.sequence(i), sums_[static_cast<size_t>(i)]);
      }
      for (int64_t i = 0; i < search_.returned; ++i) {
        const auto at = static_cast<size_t>(i);
        const bool known = at < finished.entries().size();
        sequences.push_back(known ? finished.entries()[at].tokens : std::vector<int32_t>());
        scores.push_back(known ? finished.entries()[at].score : 0.0f);
      }
    }
    ONNXD_ASSIGN_OR_RETURN(
        Tensor out, PaddedSequences(search_, sequences,
                                    Shape{search_.batch, search_.returned, search_.max_length}));
    ONNXD_ASSIGN_OR_RETURN(
        Tensor sums, Tensor::Create(DataType::kFloat, Shape{search_.batch, search_.returned}));
    std::copy(scores.begin(), scores.end(), sums.mutable_data<float>());
    return Values{std::move(out), std::move(sums)};
  }

  const Search& search_;
  Decoding decoding_;
  std::vector<Hypotheses> hypotheses_;
  std::vector<char> done_;
  std::vector<float> sums_;  // [batch, beams]: sums of logarithms of probabilities
};

class TokenSearch : public ControlFlow {
 public:
  TokenSearch(const Node& node, TokenGraphs graphs)
      : op_(node.op_type),
        attributes_(node.attributes),
        graphs_(std::move(graphs)),
        name_(Describe(node)) {}

  Result<Values> Run(std::span<const Value> inputs, std::span<const Value> captures,
                     const RunOptions& options) const override {
    auto results = Compute(inputs, captures, options);
    if (!results.ok()) return results.status().WithContext(name_);
    return results;
  }

 private:
  Result<Values> Compute(std::span<const Value> inputs, std::span<const Value> captures,
                         const RunOptions& options) const {
    const bool encoded = graphs_.encoder.has_value();
    if (op_ == "GreedySearch") {
      ONNXD_ASSIGN_OR_RETURN(const Search s, SearchOf(attributes_, inputs, kGreedyInputs, encoded));
      return OneSequence(graphs_, s, captures, options, MostLikely);
    }
    if (op_ == "Sampling") {
      ONNXD_ASSIGN_OR_RETURN(const Search s,
                             SearchOf(attributes_, inputs, kSamplingInputs, encoded));
      ONNXD_ASSIGN_OR_RETURN(const int32_t seed,
                             OneOr<int32_t>(inputs, kSamplingInputs.seed,
                                            static_cast<int32_t>(std::random_device()())));
      std::mt19937 random(static_cast<uint32_t>(seed));
      const float top_p = attributes_.Float("top_p", 0);
      const int64_t least = attributes_.Int("min_tokens_to_keep", 1);
      return OneSequence(graphs_, s, captures, options, [&](std::span<float> scores) {
        return Draw(scores, top_p, std::max<int64_t>(least, 1), random);
      });
    }
    ONNXD_ASSIGN_OR_RETURN(const Search s, SearchOf(attributes_, inputs, kBeamInputs, encoded));
    ONNXD_ASSIGN_OR_RETURN(Values results, BeamSearcher(graphs_, s, captures, options).Run());
    for (const int place : {kBeamInputs.length_penalty, kBeamInputs.repetition_penalty}) {
      const Tensor* penalty = TensorAt(inputs, place);
      if (penalty == nullptr) continue;
      ONNXD_ASSIGN_OR_RETURN(Tensor scores, Converted(results[1].tensor(), penalty->type()));
      results[1] = Value(std::move(scores));
    }
    return results;
  }

  std::string op_;
  Attributes attributes_;
  TokenGraphs graphs_;
  std::string name_;
};

}  // namespace

Result<std::unique_ptr<ControlFlow>> MakeTokenSearch(const Node& node,
                                                     const ExecutorOptions& options) {
  const size_t known = node.op_type == "GreedySearch" || node.op_type == "Sampling" ? 1 : 2;
  for (size_t i = known; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) {
      return Unimplemented(StrCat(Describe(node), ": output ", i, " is not supported"));
    }
  }
  ONNXD_ASSIGN_OR_RETURN(TokenGraphs graphs, MakeTokenGraphs(node, options));
  const bool encodes = node.attributes.Int("model_type", 0) != 0;
  if (encodes != graphs.encoder.has_value()) {
    return InvalidArgument(StrCat(Describe(node), ": model_type and encoder do not fit"));
  }
  return std::unique_ptr<ControlFlow>(std::make_unique<TokenSearch>(node, std::move(graphs)));
}

}  // namespace onnxd
