// com.microsoft Tokenizer, MurmurHash3, NGramRepeatBlock, WordConvEmbedding and DynamicTimeWarping.
// Source of the semantics: onnxruntime's ContribOperators document; MurmurHash3_x86_32 by Austin
// Appleby (https://github.com/aappleby/smhasher).
#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"
#include "runtime/text/unicode.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;
using Tokens = std::vector<std::string>;

size_t CharacterBytes(unsigned char first) {
  return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

// Made once per node; Tokenize may be called from any thread.
class Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> Make(const Node& node) {
    auto made = std::make_shared<Tokenizer>();
    const auto fail = [&](std::string_view why) {
      return InvalidArgument(StrCat(Describe(node), ": ", why));
    };
    made->mark_ = node.attributes.Int("mark", 0) != 0;
    made->pad_ = node.attributes.String("pad_value", "");
    made->shortest_ = node.attributes.Int("mincharnum", 1);
    if (made->shortest_ < 1) return fail("mincharnum must be positive");
    const auto separators = node.attributes.Strings("separators");
    const std::string expression = node.attributes.String("tokenexp", "");
    if (separators.empty() == expression.empty()) {
      return fail("one of separators and tokenexp must be given");
    }
    made->per_character_ = separators.size() == 1 && separators[0].empty();
    if (made->per_character_) return std::shared_ptr<const Tokenizer>(std::move(made));
    RE2::Options options;
    options.set_longest_match(true);
    options.set_log_errors(false);
    options.set_max_mem(int64_t{8} << 20);
    made->by_separator_ = !separators.empty();
    for (const std::string& text : made->by_separator_ ? separators : Tokens{expression}) {
      made->expressions_.push_back(std::make_unique<RE2>(text, options));
      if (text.empty() || !made->expressions_.back()->ok()) {
        return fail(StrCat("'", text.substr(0, 100), "' is no regular expression"));
      }
    }
    return std::shared_ptr<const Tokenizer>(std::move(made));
  }

  Tokens Tokenize(const std::string& text) const {
    if (per_character_) return SplitCharacters(text);
    if (!by_separator_) return Matches(text);
    std::vector<std::string_view> parts = {text};
    for (const auto& separator : expressions_) {
      std::vector<std::string_view> finer;
      for (const std::string_view part : parts) Split(part, *separator, finer);
      parts = std::move(finer);
    }
    return Tokens(parts.begin(), parts.end());
  }

  bool mark() const { return mark_; }
  const std::string& pad() const { return pad_; }

 private:
  static Tokens SplitCharacters(const std::string& text) {
    Tokens tokens;
    for (size_t at = 0; at < text.size();) {
      const size_t bytes =
          std::min(CharacterBytes(static_cast<unsigned char>(text[at])), text.size() - at);
      tokens.push_back(text.substr(at, bytes));
      at += bytes;
    }
    return tokens;
  }

  void Keep(std::string_view token, std::vector<std::string_view>& out) const {
    if (!token.empty() && static_cast<int64_t>(CountCharacters(token)) >= shortest_) out.push_back(token);
  }

  void Split(std::string_view text, const RE2& separator,
             std::vector<std::string_view>& out) const {
    const re2::StringPiece piece(text.data(), text.size());
    size_t begin = 0;
    for (size_t from = 0; from <= text.size();) {
      re2::StringPiece found;
      if (!separator.Match(piece, from, text.size(), RE2::UNANCHORED, &found, 1)) break;
      const auto at = static_cast<size_t>(found.data() - text.data());
      if (found.empty()) {
        from = at + 1;
        continue;
      }
      Keep(text.substr(begin, at - begin), out);
      from = begin = at + found.size();
    }
    Keep(text.substr(std::min(begin, text.size())), out);
  }

  Tokens Matches(const std::string& text) const {
    std::vector<std::string_view> kept;
    const std::string_view view(text);
    for (size_t from = 0; from < text.size();) {
      re2::StringPiece found;
      if (!expressions_[0]->Match(text, from, text.size(), RE2::UNANCHORED, &found, 1)) break;
      const auto at = static_cast<size_t>(found.data() - text.data());
      Keep(view.substr(at, found.size()), kept);
      from = at + std::max<size_t>(found.size(), 1);
    }
    return Tokens(kept.begin(), kept.end());
  }

  bool mark_ = false, per_character_ = false, by_separator_ = false;
  int64_t shortest_ = 1;
  std::string pad_;
  std::vector<std::unique_ptr<RE2>> expressions_;
};

// [C] or [N, C] texts -> [..., longest] tokens, padded; marks stand around the tokens of a text.
Result<Values> Tokenize(const Tokenizer& tokenizer, const Node& node,
                        std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  if (shape.rank() != 1 && shape.rank() != 2) {
    return InvalidArgument(
        StrCat(Describe(node), ": expected [C] or [N, C], got ", shape.ToString()));
  }
  std::vector<Tokens> all;
  size_t longest = 0;
  for (const std::string& text : x.elements<std::string>()) {
    all.push_back(tokenizer.Tokenize(text));
    longest = std::max(longest, all.back().size());
  }
  if (longest > 0 && tokenizer.mark()) longest += 2;
  std::vector<int64_t> dims = shape.dims();
  dims.push_back(static_cast<int64_t>(longest));
  ONNXD_RETURN_IF_ERROR(Shape(dims).Validate());
  constexpr int64_t kMaxTokens = int64_t{1} << 26;
  if (Shape(dims).ElementCount() > kMaxTokens) {
    return ResourceExhausted(StrCat(Describe(node), ": more than ", kMaxTokens, " tokens"));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kString, Shape(dims)));
  auto* to = out.mutable_data<std::string>();
  for (Tokens& tokens : all) {
    if (longest > 0 && tokenizer.mark()) {
      tokens.insert(tokens.begin(), "\x02");
      tokens.emplace_back("\x03");
    }
    tokens.resize(longest, tokenizer.pad());
    to = std::move(tokens.begin(), tokens.end(), to);
  }
  return Values{std::move(out)};
}

uint32_t Rotate(uint32_t x, int bits) { return x << bits | x >> (32 - bits); }

uint32_t Murmur3(const char* data, size_t size, uint32_t seed) {
  constexpr uint32_t c1 = 0xcc9e2d51, c2 = 0x1b873593;
  uint32_t hash = seed;
  const size_t blocks = size / 4;
  for (size_t i = 0; i < blocks; ++i) {
    uint32_t k = 0;
    std::memcpy(&k, data + i * 4, 4);
    hash = Rotate(hash ^ Rotate(k * c1, 15) * c2, 13) * 5 + 0xe6546b64;
  }
  uint32_t tail = 0;
  for (size_t i = size % 4; i > 0; --i) {
    tail = tail << 8 | static_cast<unsigned char>(data[blocks * 4 + i - 1]);
  }
  if (size % 4 != 0) hash ^= Rotate(tail * c1, 15) * c2;
  hash ^= static_cast<uint32_t>(size);
  hash = (hash ^ hash >> 16) * 0x85ebca6b;
  hash = (hash ^ hash >> 13) * 0xc2b2ae35;
  return hash ^ hash >> 16;
}

Result<Values> MurmurHash3(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const auto seed = static_cast<uint32_t>(node.attributes.Int("seed", 0));
  const bool positive = node.attributes.Int("positive", 1) != 0;
  ONNXD_ASSIGN_OR_RETURN(
      Tensor out, Tensor::Create(positive ? DataType::kUint32 : DataType::kInt32, x.shape()));
  const auto width = static_cast<size_t>(DataTypeBits(x.type())) / 8;
  for (int64_t i = 0; i < x.ElementCount(); ++i) {
    const bool text = x.type() == DataType::kString;
    const std::string* string = text ? &x.data<std::string>()[i] : nullptr;
    const char* data =
        text ? string->data() : static_cast<const char*>(x.raw()) + static_cast<size_t>(i) * width;
    static_cast<uint32_t*>(out.mutable_raw())[i] =
        Murmur3(data, text ? string->size() : width, seed);
  }
  return Values{std::move(out)};
}

// Scores of tokens that would repeat a run of `ngram_size` tokens become -inf.
Result<Values> NGramRepeatBlock(const Node& node, std::span<const Value> inputs) {
  const Tensor& ids = inputs[0].tensor();
  const Tensor& scores = inputs[1].tensor();
  const int64_t size = node.attributes.Int("ngram_size", 0);
  if (ids.shape().rank() != 2 || scores.shape().rank() != 2 ||
      ids.shape()[0] != scores.shape()[0] || size < 1) {
    return InvalidArgument(StrCat(Describe(node), ": input_ids ", ids.shape().ToString(),
                                  ", scores ", scores.shape().ToString(), ", ngram_size ", size));
  }
  const int64_t length = ids.shape()[1], vocabulary = scores.shape()[1];
  std::vector<float> out = ElementsAs<float>(scores);
  for (int64_t row = 0; row < ids.shape()[0]; ++row) {
    const int64_t* tokens = ids.data<int64_t>() + row * length;
    const int64_t* prefix = tokens + std::max<int64_t>(length - size + 1, 0);
    for (int64_t at = 0; at + size <= length; ++at) {
      if (!std::equal(tokens + at, tokens + at + size - 1, prefix)) continue;
      const int64_t next = tokens[at + size - 1];
      if (next < 0 || next >= vocabulary) {
        return InvalidArgument(
            StrCat(Describe(node), ": token ", next, " is not in [0, ", vocabulary, ")"));
      }
      out[static_cast<size_t>(row * vocabulary + next)] = -std::numeric_limits<float>::infinity();
    }
  }
  return OneValue(TensorFrom(DataType::kFloat, scores.shape(), out));
}

// How many characters a word has; characters up to the first 0 count.
int64_t WordLength(const int32_t* word, int64_t most) {
  int64_t length = 0;
  while (length < most && word[length] > 0) ++length;
  return length;
}

// Sequence [words, characters], W [filters, 1, window, size], B [filters], C [alphabet, size]:
// per word and filter the largest tanh of the filter over its windows. Gives [words, filters].
Result<Values> WordConvEmbedding(const Node& node, std::span<const Value> inputs) {
  const Tensor& sequence = inputs[0].tensor();
  const Tensor &w = inputs[1].tensor(), &bias = inputs[2].tensor(), &table = inputs[3].tensor();
  const Shape &s = sequence.shape(), &ws = w.shape(), &cs = table.shape();
  const bool fits = s.rank() == 2 && ws.rank() == 4 && ws[1] == 1 && ws[2] > 0 && cs.rank() == 2 &&
                    cs[1] == ws[3] && bias.ElementCount() == ws[0] && s[1] >= ws[2];
  if (!fits) {
    return InvalidArgument(StrCat(Describe(node), ": Sequence ", s.ToString(), ", W ",
                                  ws.ToString(), ", B and C ", cs.ToString(), " do not fit"));
  }
  const int64_t filters = ws[0], window = ws[2], size = ws[3], most = s[1];
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kFloat, Shape{s[0], filters}));
  float* to = out.mutable_data<float>();
  const int32_t* word = sequence.data<int32_t>();
  for (int64_t i = 0; i < s[0]; ++i, word += most) {
    const int64_t length = WordLength(word, most);
    const int64_t windows = length == 0 ? 0 : std::max(length, window) - window + 1;
    for (int64_t at = 0; windows > 0 && at < windows + window - 1; ++at) {
      if (word[at] < 0 || word[at] >= cs[0]) {
        return InvalidArgument(
            StrCat(Describe(node), ": character ", word[at], " is not in [0, ", cs[0], ")"));
      }
    }
    for (int64_t f = 0; f < filters; ++f) {
      float best = windows == 0 ? 0.0f : -std::numeric_limits<float>::infinity();
      for (int64_t at = 0; at < windows; ++at) {
        float sum = bias.data<float>()[f];
        for (int64_t t = 0; t < window * size; ++t) {
          sum += w.data<float>()[f * window * size + t] *
                 table.data<float>()[word[at + t / size] * size + t % size];
        }
        best = std::max(best, std::tanh(sum));
      }
      *to++ = best;
    }
  }
  return Values{std::move(out)};
}

// The cheapest path from the first to the last element of a matrix of costs [1?, rows, columns],
// by steps down, right or both; as [2, steps]: rows and columns. Source: Sakoe and Chiba 1978.
Result<Values> DynamicTimeWarping(const Node& node, std::span<const Value> inputs) {
  const Tensor& costs = inputs[0].tensor();
  const Shape& s = costs.shape();
  if (s.rank() < 2 || s.rank() > 3 || (s.rank() == 3 && s[0] != 1) || costs.ElementCount() == 0) {
    return InvalidArgument(StrCat(Describe(node), ": an input of shape ", s.ToString()));
  }
  const int64_t rows = s[s.rank() - 2], columns = s[s.rank() - 1];
  enum : char { kBoth, kDown, kRight };
  std::vector<float> above(static_cast<size_t>(columns) + 1,
                           std::numeric_limits<float>::infinity());
  std::vector<float> current = above;
  above[0] = 0;
  std::vector<char> steps(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r) {
    current[0] = std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c < columns; ++c) {
      const auto at = static_cast<size_t>(c);
      const float both = above[at], down = above[at + 1], right = current[at];
      const char step = both < down && both < right   ? kBoth
                        : down < both && down < right ? kDown
                                                      : kRight;
      const float before = step == kBoth ? both : step == kDown ? down : right;
      steps[static_cast<size_t>(r * columns + c)] = step;
      current[at + 1] = costs.data<float>()[r * columns + c] + before;
    }
    std::swap(above, current);
  }
  std::vector<std::pair<int32_t, int32_t>> path;
  for (int64_t r = rows - 1, c = columns - 1; r >= 0 && c >= 0;) {
    path.emplace_back(static_cast<int32_t>(r), static_cast<int32_t>(c));
    // Along the first row and column there is but one way.
    char step = steps[static_cast<size_t>(r * columns + c)];
    if (r == 0) step = kRight;
    if (r > 0 && c == 0) step = kDown;
    if (step != kRight) --r;
    if (step != kDown) --c;
  }
  const auto count = static_cast<int64_t>(path.size());
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kInt32, Shape{2, count}));
  for (int64_t i = 0; i < count; ++i) {
    const auto [row, column] = path[static_cast<size_t>(count - 1 - i)];
    out.mutable_data<int32_t>()[i] = row;
    out.mutable_data<int32_t>()[count + i] = column;
  }
  return Values{std::move(out)};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeTokenizer(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Make(info.node));
  return MakeEagerKernel([tokenizer](const Node& node, std::span<const Value> inputs) {
    return Tokenize(*tokenizer, node, inputs);
  });
}
Result<std::unique_ptr<Kernel>> MakeMurmurHash3(const KernelInfo&) {
  return MakeEagerKernel(MurmurHash3);
}

Result<std::unique_ptr<Kernel>> MakeWordConvEmbedding(const KernelInfo&) {
  return MakeEagerKernel(WordConvEmbedding);
}

Result<std::unique_ptr<Kernel>> MakeDynamicTimeWarping(const KernelInfo&) {
  return MakeEagerKernel(DynamicTimeWarping);
}

Result<std::unique_ptr<Kernel>> MakeNGramRepeatBlock(const KernelInfo&) {
  return MakeEagerKernel(NGramRepeatBlock);
}

}  // namespace onnxd
