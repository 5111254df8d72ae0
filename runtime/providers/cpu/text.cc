// StringNormalizer-10, StringConcat-20, StringSplit-20, RegexFullMatch-20, TfIdfVectorizer-9.
#include <re2/re2.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/ops/inference_rules.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/string_tensors.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"
#include "runtime/text/unicode.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;
using Strings = std::vector<std::string>;

Result<Values> StringNormalizer(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  if (shape.rank() != 1 && !(shape.rank() == 2 && shape[0] == 1)) {
    return InvalidArgument(
        StrCat(Describe(node), ": expected [C] or [1, C], got ", shape.ToString()));
  }
  const std::string action = node.attributes.String("case_change_action", "NONE");
  const auto change = [&](const std::string& text) {
    return action == "LOWER" ? Lower(text) : action == "UPPER" ? Upper(text) : text;
  };
  const bool sensitive = node.attributes.Int("is_case_sensitive", 0) != 0;
  const auto key = [&](const std::string& text) { return sensitive ? text : Lower(text); };
  std::set<std::string> stop;
  for (const std::string& word : node.attributes.Strings("stopwords")) stop.insert(key(word));
  Strings kept;
  for (const std::string& text : x.elements<std::string>()) {
    if (!stop.contains(key(text))) kept.push_back(change(text));
  }
  if (kept.empty()) kept.emplace_back();
  const auto count = static_cast<int64_t>(kept.size());
  return OneValue(
      StringTensor(shape.rank() == 1 ? Shape{count} : Shape{1, count}, std::move(kept)));
}

Result<Values> StringConcat(const Node& node, std::span<const Value> inputs) {
  const Tensor& a = inputs[0].tensor();
  const Tensor& b = inputs[1].tensor();
  ONNXD_ASSIGN_OR_RETURN(const SymbolicShape shape,
                         Broadcast(ToSymbolic(a.shape()), ToSymbolic(b.shape())));
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kString, *ToConcrete(shape)));
  if (out.ElementCount() == 0) return Values{std::move(out)};
  // Texts that are joined with themselves again and again double each time.
  constexpr size_t kMaxBytes = size_t{1} << 30;
  size_t bytes = 0;
  const auto loop = BroadcastLoop<2>(out.shape(), {&a.shape(), &b.shape()});
  loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 3>& at) {
    for (int64_t i = 0; i < loop.inner_count(); ++i) {
      const std::string& left = a.data<std::string>()[at[1] + i * loop.inner_stride(1)];
      const std::string& right = b.data<std::string>()[at[2] + i * loop.inner_stride(2)];
      bytes += left.size() + right.size();
      if (bytes > kMaxBytes) return;
      out.mutable_data<std::string>()[at[0] + i * loop.inner_stride(0)] = left + right;
    }
  });
  if (bytes > kMaxBytes) {
    return ResourceExhausted(StrCat(Describe(node), ": more than ", kMaxBytes, " bytes of text"));
  }
  return Values{std::move(out)};
}

// Parts between delimiters; an empty delimiter splits at runs of white space, as Python's split().
Strings SplitText(const std::string& text, const std::string& delimiter, int64_t max_splits) {
  Strings parts;
  size_t begin = 0;
  if (!delimiter.empty()) {
    while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
      const size_t end = text.find(delimiter, begin);
      if (end == std::string::npos) break;
      parts.push_back(text.substr(begin, end - begin));
      begin = end + delimiter.size();
    }
    parts.push_back(text.substr(begin));
    return parts;
  }
  constexpr const char* kSpace = " \t\n\r\v\f";
  while ((begin = text.find_first_not_of(kSpace, begin)) != std::string::npos) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      const size_t last = text.find_last_not_of(kSpace);
      parts.push_back(text.substr(begin, last + 1 - begin));
      break;
    }
    const size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return parts;
}

Result<Values> StringSplit(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const std::string delimiter = node.attributes.String("delimiter", "");
  const int64_t max_splits = node.attributes.Int("maxsplit", -1);
  std::vector<Strings> all;
  size_t widest = 0;
  for (const std::string& text : x.elements<std::string>()) {
    // Python splits an empty text into nothing at white space, and into "" at a delimiter.
    all.push_back(text.empty() ? Strings{} : SplitText(text, delimiter, max_splits));
    if (text.empty() && !delimiter.empty()) all.back().emplace_back();
    widest = std::max(widest, all.back().size());
  }
  Shape shape = x.shape();
  shape.Append(static_cast<int64_t>(widest));
  ONNXD_ASSIGN_OR_RETURN(Tensor parts, Tensor::Create(DataType::kString, shape));
  ONNXD_ASSIGN_OR_RETURN(Tensor counts, Tensor::Create(DataType::kInt64, x.shape()));
  for (size_t i = 0; i < all.size(); ++i) {
    std::move(all[i].begin(), all[i].end(), parts.mutable_data<std::string>() + i * widest);
    counts.mutable_data<int64_t>()[i] = static_cast<int64_t>(all[i].size());
  }
  return Values{std::move(parts), std::move(counts)};
}

Result<Values> RegexFullMatch(const Node&, std::span<const Value> inputs, const re2::RE2& pattern) {
  const Tensor& x = inputs[0].tensor();
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kBool, x.shape()));
  bool* to = out.mutable_data<bool>();
  for (const std::string& text : x.elements<std::string>()) {
    *to++ = re2::RE2::FullMatch(text, pattern);
  }
  return Values{std::move(out)};
}

// The n-grams of a pool with the output column of each.
class Vocabulary {
 public:
  static Result<Vocabulary> Make(const Node& node) {
    Vocabulary v;
    const auto& a = node.attributes;
    v.min_ = a.Int("min_gram_length", 1);
    v.max_ = a.Int("max_gram_length", 1);
    v.max_skip_ = a.Int("max_skip_count", 0);
    v.mode_ = a.String("mode", "TF");
    v.weights_ = a.Floats("weights");
    v.columns_ = a.Ints("ngram_indexes");
    const auto starts = a.Ints("ngram_counts");
    const auto words = a.Strings("pool_strings");
    const auto numbers = a.Ints("pool_int64s");
    const size_t pool = words.empty() ? numbers.size() : words.size();
    const auto fail = [&](std::string_view why) {
      return InvalidArgument(StrCat(Describe(node), ": ", why));
    };
    if (v.min_ < 1 || v.max_ < v.min_ || v.max_ > 64 || v.max_skip_ < 0 || v.max_skip_ > 4096) {
      return fail("gram lengths or skip count are out of range");
    }
    size_t gram = 0;
    for (size_t n = 0; n < starts.size(); ++n) {
      const auto begin = static_cast<size_t>(std::max<int64_t>(starts[n], 0));
      const size_t end = n + 1 < starts.size() ? static_cast<size_t>(starts[n + 1]) : pool;
      if (begin > end || end > pool || (end - begin) % (n + 1) != 0) {
        return fail("ngram_counts do not fit the pool");
      }
      for (size_t at = begin; at < end; at += n + 1, ++gram) {
        if (gram >= v.columns_.size()) return fail("ngram_indexes is too short");
        std::vector<std::string> key;
        for (size_t i = 0; i <= n; ++i) {
          key.push_back(words.empty() ? std::to_string(numbers[at + i]) : words[at + i]);
        }
        v.grams_[std::move(key)] = gram;
      }
    }
    if (!v.weights_.empty() && v.weights_.size() < v.columns_.size()) {
      return fail("weights is too short");
    }
    for (const int64_t column : v.columns_) {
      if (column < 0 || column > (int64_t{1} << 30)) return fail("ngram_indexes out of range");
      v.width_ = std::max(v.width_, column + 1);
    }
    return v;
  }

  int64_t width() const { return width_; }

  void Count(const std::vector<std::string>& row, float* out) const {
    std::vector<int64_t> counts(columns_.size(), 0);
    for (int64_t skip = 0; skip <= max_skip_; ++skip) {
      for (int64_t n = min_; n <= max_; ++n) {
        if (n == 1 && skip > 0) continue;  // single words have nothing to skip
        CountGrams(row, n, skip + 1, counts);
      }
    }
    for (size_t gram = 0; gram < counts.size(); ++gram) {
      if (counts[gram] == 0) continue;
      const float weight = weights_.empty() ? 1.0f : weights_[gram];
      float& cell = out[columns_[gram]];
      const auto count = static_cast<float>(counts[gram]);
      cell = mode_ == "TF" ? count : mode_ == "IDF" ? weight : count * weight;
    }
  }

 private:
  void CountGrams(const std::vector<std::string>& row, int64_t n, int64_t step,
                  std::vector<int64_t>& counts) const {
    std::vector<std::string> key(static_cast<size_t>(n));
    const auto length = static_cast<int64_t>(row.size());
    for (int64_t begin = 0; begin + (n - 1) * step < length; ++begin) {
      for (int64_t i = 0; i < n; ++i) {
        key[static_cast<size_t>(i)] = row[static_cast<size_t>(begin + i * step)];
      }
      const auto found = grams_.find(key);
      if (found != grams_.end()) ++counts[found->second];
    }
  }

  int64_t min_ = 1, max_ = 1, max_skip_ = 0, width_ = 0;
  std::string mode_;
  std::vector<float> weights_;
  std::vector<int64_t> columns_;
  std::map<std::vector<std::string>, size_t> grams_;
};

Result<Values> TfIdf(const Node& node, std::span<const Value> inputs, const Vocabulary& words) {
  const Tensor& x = inputs[0].tensor();
  Shape shape = x.shape();
  if (shape.rank() > 2) return InvalidArgument(StrCat(Describe(node), ": rank above 2"));
  const int64_t columns = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  const int64_t rows = shape.rank() == 2 ? shape[0] : 1;
  ONNXD_ASSIGN_OR_RETURN(
      Tensor out, Tensor::Create(DataType::kFloat, shape.rank() == 2 ? Shape{rows, words.width()}
                                                                     : Shape{words.width()}));
  std::fill_n(out.mutable_data<float>(), out.ElementCount(), 0.0f);
  Strings all;
  if (x.type() == DataType::kString) {
    const auto elements = x.elements<std::string>();
    all.assign(elements.begin(), elements.end());
  } else {
    for (const int64_t number : ElementsAs<int64_t>(x)) all.push_back(std::to_string(number));
  }
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = all.begin() + row * columns;
    words.Count({begin, begin + columns}, out.mutable_data<float>() + row * words.width());
  }
  return Values{std::move(out)};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeStringNormalizer(const KernelInfo&) {
  return MakeEagerKernel(StringNormalizer);
}
Result<std::unique_ptr<Kernel>> MakeStringConcat(const KernelInfo&) {
  return MakeEagerKernel(StringConcat);
}
Result<std::unique_ptr<Kernel>> MakeStringSplit(const KernelInfo&) {
  return MakeEagerKernel(StringSplit);
}

Result<std::unique_ptr<Kernel>> MakeRegexFullMatch(const KernelInfo& info) {
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(8 << 20);
  auto pattern =
      std::make_shared<const re2::RE2>(info.node.attributes.String("pattern", ""), options);
  if (!pattern->ok()) {
    return InvalidArgument(StrCat(Describe(info.node), ": pattern: ", pattern->error()));
  }
  return MakeEagerKernel([pattern](const Node& node, std::span<const Value> inputs) {
    return RegexFullMatch(node, inputs, *pattern);
  });
}

Result<std::unique_ptr<Kernel>> MakeTfIdfVectorizer(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(Vocabulary made, Vocabulary::Make(info.node));
  auto words = std::make_shared<const Vocabulary>(std::move(made));
  return MakeEagerKernel([words](const Node& node, std::span<const Value> inputs) {
    return TfIdf(node, inputs, *words);
  });
}

}  // namespace onnxd
