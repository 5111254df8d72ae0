// ai.onnx.contrib: what onnxruntime-extensions does to strings beside tokenizing them (StringUpper
// to VectorToString, MaskedFill). Source of the semantics: its operators, which follow tensorflow's
// and tensorflow_text's of those names. StringUpper and white space are of ASCII, as theirs are;
// StringLower is of all Unicode, of which theirs knows the Latin letters.
#include <re2/re2.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <unordered_map>

#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/string_tensors.h"
#include "runtime/text/unicode.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;
using Strings = std::vector<std::string>;

constexpr size_t kMaxBytes = size_t{1} << 30;

Status Fail(const Node& node, std::string_view why) {
  return InvalidArgument(StrCat(Describe(node), ": ", why));
}

std::span<const std::string> TextsOf(const Value& value) {
  return value.tensor().elements<std::string>();
}

// The one element of an input.
template <typename T>
Result<T> One(const Node& node, std::span<const Value> inputs, size_t i) {
  const Tensor* tensor = TensorAt(inputs, i);
  if (tensor == nullptr || tensor->ElementCount() != 1) {
    return Fail(node, StrCat("input ", i, " must have one element"));
  }
  return *tensor->data<T>();
}

// Each text by itself.
using Change = std::function<std::string(const std::string&)>;
EagerFunction ForEach(Change change) {
  return [change](const Node&, std::span<const Value> inputs) {
    Strings out;
    for (const std::string& text : TextsOf(inputs[0])) out.push_back(change(text));
    return OneValue(StringTensor(inputs[0].tensor().shape(), std::move(out)));
  };
}

std::string UpperAscii(const std::string& text) {
  std::string out = text;
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

std::string LowerAll(const std::string& text) { return Lower(text); }

std::string Strip(const std::string& text) {
  constexpr const char* kSpace = " \t\n\r\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// In characters.
Result<Values> StringLength(const Node&, std::span<const Value> inputs) {
  std::vector<int64_t> lengths;
  for (const std::string& text : TextsOf(inputs[0])) {
    lengths.push_back(static_cast<int64_t>(CountCharacters(text)));
  }
  return OneValue(TensorFrom<int64_t>(DataType::kInt64, inputs[0].tensor().shape(), lengths));
}

Result<Values> StringConcat(const Node& node, std::span<const Value> inputs) {
  const auto left = TextsOf(inputs[0]), right = TextsOf(inputs[1]);
  const Shape& shape = inputs[0].tensor().shape();
  if (shape != inputs[1].tensor().shape()) {
    return Fail(node, StrCat("texts of shapes ", shape.ToString(), " and ",
                             inputs[1].tensor().shape().ToString()));
  }
  Strings out;
  size_t bytes = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    bytes += left[i].size() + right[i].size();
    if (bytes > kMaxBytes)
      return ResourceExhausted(StrCat(Describe(node), ": more than ", kMaxBytes, " bytes"));
    out.push_back(left[i] + right[i]);
  }
  return OneValue(StringTensor(shape, std::move(out)));
}

Result<Values> StringEqual(const Node&, std::span<const Value> inputs) {
  const Tensor &a = inputs[0].tensor(), &b = inputs[1].tensor();
  ONNXD_ASSIGN_OR_RETURN(const SymbolicShape shape,
                         Broadcast(ToSymbolic(a.shape()), ToSymbolic(b.shape())));
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kBool, *ToConcrete(shape)));
  if (out.ElementCount() == 0) return Values{std::move(out)};
  const auto loop = BroadcastLoop<2>(out.shape(), {&a.shape(), &b.shape()});
  loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 3>& at) {
    for (int64_t i = 0; i < loop.inner_count(); ++i) {
      out.mutable_data<bool>()[at[0] + i * loop.inner_stride(0)] =
          a.data<std::string>()[at[1] + i * loop.inner_stride(1)] ==
          b.data<std::string>()[at[2] + i * loop.inner_stride(2)];
    }
  });
  return Values{std::move(out)};
}

// Texts along an axis, with a separator between them; of a vector [1].
Result<Values> StringJoin(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  ONNXD_ASSIGN_OR_RETURN(const std::string separator, One<std::string>(node, inputs, 1));
  ONNXD_ASSIGN_OR_RETURN(const int64_t axis, One<int64_t>(node, inputs, 2));
  std::vector<int64_t> dims = x.shape().dims();
  if (dims.empty()) dims.push_back(1);
  if (axis < 0 || axis >= static_cast<int64_t>(dims.size())) {
    return Fail(node, StrCat("axis ", axis, " of ", x.shape().ToString()));
  }
  const auto place = static_cast<size_t>(axis);
  size_t outer = 1, inner = 1;
  for (size_t i = 0; i < place; ++i) outer *= static_cast<size_t>(dims[i]);
  for (size_t i = place + 1; i < dims.size(); ++i) inner *= static_cast<size_t>(dims[i]);
  const auto count = static_cast<size_t>(dims[place]);
  dims.erase(dims.begin() + axis);
  if (dims.empty()) dims.push_back(1);
  const auto texts = TextsOf(inputs[0]);
  Strings out;
  size_t bytes = 0;
  for (size_t i = 0; i < outer * inner; ++i) {
    std::string joined;
    for (size_t k = 0; k < count; ++k) {
      if (k > 0) joined += separator;
      joined += texts[(i / inner * count + k) * inner + i % inner];
      if (bytes + joined.size() > kMaxBytes) {
        return ResourceExhausted(StrCat(Describe(node), ": more than ", kMaxBytes, " bytes"));
      }
    }
    bytes += joined.size();
    out.push_back(std::move(joined));
  }
  return OneValue(StringTensor(Shape(dims), std::move(out)));
}

// At each character of the separator, or between all characters; empty parts go where
// `skips_empty`.
Strings SplitAtAny(const std::string& text, const std::string& separators, bool skips_empty) {
  Strings parts;
  if (text.empty()) return parts;
  if (separators.empty()) {
    for (size_t at = 0; at < text.size();) {
      size_t end = at + 1;
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
      parts.push_back(text.substr(at, end - at));
      at = end;
    }
    return parts;
  }
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    if (end > at || !skips_empty) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// [n] texts -> as a sparse matrix: places [parts, 2], parts, shape.
Result<Values> StringSplit(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  if (x.shape().rank() != 1) return Fail(node, StrCat("expected [n], got ", x.shape().ToString()));
  ONNXD_ASSIGN_OR_RETURN(const std::string separators, One<std::string>(node, inputs, 1));
  ONNXD_ASSIGN_OR_RETURN(const bool skips_empty, One<bool>(node, inputs, 2));
  std::vector<int64_t> places;
  Strings all;
  int64_t widest = 0;
  for (int64_t row = 0; row < x.shape()[0]; ++row) {
    Strings parts = SplitAtAny(x.data<std::string>()[row], separators, skips_empty);
    for (size_t i = 0; i < parts.size(); ++i) {
      places.push_back(row);
      places.push_back(static_cast<int64_t>(i));
      all.push_back(std::move(parts[i]));
    }
    widest = std::max(widest, static_cast<int64_t>(parts.size()));
  }
  const auto count = static_cast<int64_t>(all.size());
  ONNXD_ASSIGN_OR_RETURN(Tensor indices,
                         TensorFrom<int64_t>(DataType::kInt64, Shape{count, 2}, places));
  ONNXD_ASSIGN_OR_RETURN(Tensor parts, StringTensor(Shape{count}, std::move(all)));
  ONNXD_ASSIGN_OR_RETURN(Tensor shape,
                         TensorFrom<int64_t>(DataType::kInt64, Shape{2}, {x.shape()[0], widest}));
  return Values{std::move(indices), std::move(parts), std::move(shape)};
}

Result<std::unique_ptr<RE2>> Compile(const Node& node, const std::string& pattern,
                                     bool ignores_case = false) {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(int64_t{8} << 20);
  options.set_case_sensitive(!ignores_case);
  if (pattern.empty()) return Fail(node, "the pattern is empty");
  auto expression = std::make_unique<RE2>(pattern, options);
  if (!expression->ok())
    return Fail(node, StrCat("pattern '", pattern.substr(0, 100), "': ", expression->error()));
  return expression;
}

Result<Values> ReplaceMatches(const Node& node, const Value& texts, const RE2& pattern,
                              const std::string& rewrite) {
  std::string error;
  if (!pattern.CheckRewriteString(rewrite, &error)) {
    return Fail(node, StrCat("rewrite '", rewrite.substr(0, 100), "': ", error));
  }
  const bool all = node.attributes.Int("global_replace", 1) != 0;
  Strings out;
  size_t bytes = 0;
  for (const std::string& text : TextsOf(texts)) {
    // No more can come of it than the rewrite, with all of the text in each group, for each place.
    const size_t most = rewrite.size() > 0 ? (text.size() + 1) * (rewrite.size() + 1) : text.size();
    if (text.size() > kMaxBytes / (rewrite.size() + 1) || bytes + most > kMaxBytes) {
      return ResourceExhausted(StrCat(Describe(node), ": more than ", kMaxBytes, " bytes"));
    }
    std::string changed = text;
    if (all) {
      RE2::GlobalReplace(&changed, pattern, rewrite);
    } else {
      RE2::Replace(&changed, pattern, rewrite);
    }
    bytes += changed.size();
    out.push_back(std::move(changed));
  }
  return OneValue(StringTensor(texts.tensor().shape(), std::move(out)));
}

Result<Values> StringRegexReplace(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const std::string pattern, One<std::string>(node, inputs, 1));
  ONNXD_ASSIGN_OR_RETURN(const std::string rewrite, One<std::string>(node, inputs, 2));
  ONNXD_ASSIGN_OR_RETURN(const auto expression, Compile(node, pattern));
  return ReplaceMatches(node, inputs[0], *expression, rewrite);
}

// $1, $& and $$ of ECMAScript as RE2 writes them.
std::string EcmaRewrite(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] == '\\') {
      out += "\\\\";
    } else if (text[i] == '$' && ((next >= '1' && next <= '9') || next == '&' || next == '$')) {
      out += next == '$' ? std::string("$") : StrCat("\\", next == '&' ? '0' : next);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Without lookaround and back references, which RE2 has not.
Result<Values> StringEcmaRegexReplace(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const std::string pattern, One<std::string>(node, inputs, 1));
  ONNXD_ASSIGN_OR_RETURN(const std::string rewrite, One<std::string>(node, inputs, 2));
  ONNXD_ASSIGN_OR_RETURN(const auto expression,
                         Compile(node, pattern, node.attributes.Int("ignore_case", 0) != 0));
  return ReplaceMatches(node, inputs[0], *expression, EcmaRewrite(rewrite));
}

// Texts cut at delimiters, of which those are kept that the second pattern matches: all parts,
// where each begins and ends in its text, in bytes, and where each text's parts begin.
Result<Values> StringRegexSplit(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const std::string pattern, One<std::string>(node, inputs, 1));
  ONNXD_ASSIGN_OR_RETURN(const std::string kept_pattern, One<std::string>(node, inputs, 2));
  ONNXD_ASSIGN_OR_RETURN(const auto delimiter, Compile(node, pattern));
  std::unique_ptr<RE2> kept;
  if (!kept_pattern.empty()) {
    ONNXD_ASSIGN_OR_RETURN(kept, Compile(node, kept_pattern));
  }
  Strings parts;
  std::vector<int64_t> begins, ends, rows = {0};
  for (const std::string& text : TextsOf(inputs[0])) {
    const auto keep = [&](size_t begin, size_t end) {
      if (begin == end) return;
      parts.push_back(text.substr(begin, end - begin));
      begins.push_back(static_cast<int64_t>(begin));
      ends.push_back(static_cast<int64_t>(end));
    };
    size_t begin = 0;
    for (size_t from = 0; from < text.size();) {
      re2::StringPiece found;
      if (!delimiter->Match(text, from, text.size(), RE2::UNANCHORED, &found, 1)) break;
      const auto at = static_cast<size_t>(found.data() - text.data());
      if (found.empty()) {
        from = at + 1;
        continue;
      }
      keep(begin, at);
      if (kept && RE2::FullMatch(found, *kept)) keep(at, at + found.size());
      from = begin = at + found.size();
    }
    keep(begin, text.size());
    rows.push_back(static_cast<int64_t>(parts.size()));
  }
  const auto count = static_cast<int64_t>(parts.size());
  ONNXD_ASSIGN_OR_RETURN(Tensor texts, StringTensor(Shape{count}, std::move(parts)));
  ONNXD_ASSIGN_OR_RETURN(Tensor first, TensorFrom<int64_t>(DataType::kInt64, Shape{count}, begins));
  ONNXD_ASSIGN_OR_RETURN(Tensor last, TensorFrom<int64_t>(DataType::kInt64, Shape{count}, ends));
  ONNXD_ASSIGN_OR_RETURN(
      Tensor offsets,
      TensorFrom<int64_t>(DataType::kInt64, Shape{static_cast<int64_t>(rows.size())}, rows));
  return Values{std::move(texts), std::move(first), std::move(last), std::move(offsets)};
}

// Lines "TEXT<tab>TEXT" of attribute `map`.
Result<std::vector<std::pair<std::string, std::string>>> ParseMap(const Node& node) {
  std::vector<std::pair<std::string, std::string>> entries;
  const std::string text = node.attributes.String("map", "");
  for (const std::string_view line : NonEmptyLines(text)) {
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos || line.find('\t', tab + 1) != std::string_view::npos) {
      return InvalidArgument(
          StrCat("map has '", line.substr(0, 100), "', which is no TEXT<tab>TEXT"));
    }
    entries.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  return entries;
}

// Whole numbers between blanks.
Result<std::vector<int64_t>> ParseNumbers(std::string_view text) {
  std::vector<int64_t> numbers;
  while (true) {
    const size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) return numbers;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find(' '));
    const char* end = word.data() + word.size();
    if (std::from_chars(word.data(), end, numbers.emplace_back()).ptr != end) {
      return InvalidArgument(StrCat("'", word.substr(0, 100), "' is no whole number"));
    }
    text.remove_prefix(word.size());
  }
}

// Texts and vectors of one length.
struct VectorMap {
  std::vector<std::pair<std::string, std::vector<int64_t>>> entries;
  size_t length = 0;

  static Result<VectorMap> Make(const Node& node) {
    VectorMap made;
    ONNXD_ASSIGN_OR_RETURN(const auto lines, ParseMap(node));
    if (lines.empty()) return InvalidArgument("map is empty");
    for (const auto& [text, numbers] : lines) {
      ONNXD_ASSIGN_OR_RETURN(std::vector<int64_t> vector, ParseNumbers(numbers));
      if (made.entries.empty()) made.length = vector.size();
      if (vector.size() != made.length) {
        return InvalidArgument(StrCat("map: '", text.substr(0, 100), "' has ", vector.size(),
                                      " numbers, others have ", made.length));
      }
      made.entries.emplace_back(text, std::move(vector));
    }
    return made;
  }
};

Result<Values> MaskedFill(const Node& node, std::span<const Value> inputs) {
  const Tensor &x = inputs[0].tensor(), &mask = inputs[1].tensor();
  if (x.shape().rank() > 1 || x.shape() != mask.shape()) {
    return Fail(node, StrCat("value ", x.shape().ToString(), ", mask ", mask.shape().ToString(),
                             ": expected two of [n]"));
  }
  Strings out;
  for (int64_t i = 0; i < x.ElementCount(); ++i) {
    if (mask.data<bool>()[i]) out.push_back(x.data<std::string>()[i]);
  }
  const auto count = static_cast<int64_t>(out.size());
  return OneValue(StringTensor(Shape{count}, std::move(out)));
}

}  // namespace

using Made = Result<std::unique_ptr<Kernel>>;

Made MakeExtensionStringUpper(const KernelInfo&) { return MakeEagerKernel(ForEach(UpperAscii)); }
Made MakeExtensionStringLower(const KernelInfo&) { return MakeEagerKernel(ForEach(LowerAll)); }
Made MakeExtensionStringStrip(const KernelInfo&) { return MakeEagerKernel(ForEach(Strip)); }
Made MakeExtensionStringLength(const KernelInfo&) { return MakeEagerKernel(StringLength); }
Made MakeExtensionStringConcat(const KernelInfo&) { return MakeEagerKernel(StringConcat); }
Made MakeExtensionStringEqual(const KernelInfo&) { return MakeEagerKernel(StringEqual); }
Made MakeExtensionStringJoin(const KernelInfo&) { return MakeEagerKernel(StringJoin); }
Made MakeExtensionStringSplit(const KernelInfo&) { return MakeEagerKernel(StringSplit); }
Made MakeExtensionStringRegexReplace(const KernelInfo&) {
  return MakeEagerKernel(StringRegexReplace);
}
Made MakeExtensionStringEcmaRegexReplace(const KernelInfo&) {
  return MakeEagerKernel(StringEcmaRegexReplace);
}
Made MakeExtensionStringRegexSplit(const KernelInfo&) { return MakeEagerKernel(StringRegexSplit); }
Made MakeExtensionMaskedFill(const KernelInfo&) { return MakeEagerKernel(MaskedFill); }

Made MakeExtensionStringMapping(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const auto entries, ParseMap(info.node));
  std::unordered_map<std::string, std::string> map;
  for (const auto& [from, to] : entries) map[from] = to;
  return MakeEagerKernel(ForEach([map](const std::string& text) {
    const auto found = map.find(text);
    return found == map.end() ? text : found->second;
  }));
}

Made MakeExtensionStringToVector(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const VectorMap map, VectorMap::Make(info.node));
  ONNXD_ASSIGN_OR_RETURN(const auto unknown, ParseNumbers(info.node.attributes.String("unk", "")));
  if (unknown.size() != map.length) {
    return InvalidArgument(StrCat("unk has ", unknown.size(), " numbers, map has ", map.length));
  }
  std::unordered_map<std::string, std::vector<int64_t>> vectors(map.entries.begin(),
                                                                map.entries.end());
  return MakeEagerKernel(
      [vectors, unknown](const Node&, std::span<const Value> inputs) -> Result<Values> {
        std::vector<int64_t> out;
        for (const std::string& text : TextsOf(inputs[0])) {
          const auto found = vectors.find(text);
          const std::vector<int64_t>& vector = found == vectors.end() ? unknown : found->second;
          out.insert(out.end(), vector.begin(), vector.end());
        }
        Shape shape = inputs[0].tensor().shape();
        shape.Append(static_cast<int64_t>(unknown.size()));
        return OneValue(TensorFrom<int64_t>(DataType::kInt64, shape, out));
      });
}

// Vectors along the last axis, of which a vector of numbers has one each where they have one
// number.
Made MakeExtensionVectorToString(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const VectorMap map, VectorMap::Make(info.node));
  std::map<std::vector<int64_t>, std::string> texts;
  for (const auto& [text, vector] : map.entries) texts[vector] = text;
  const std::string unknown = info.node.attributes.String("unk", "");
  const size_t length = map.length;
  return MakeEagerKernel([=](const Node& node, std::span<const Value> inputs) -> Result<Values> {
    const Tensor& x = inputs[0].tensor();
    std::vector<int64_t> dims = x.shape().dims();
    if (length != 1 || dims.size() > 1) {
      if (dims.empty() || dims.back() != static_cast<int64_t>(length)) {
        return Fail(node,
                    StrCat("vectors of ", length, " numbers expected, got ", x.shape().ToString()));
      }
      dims.pop_back();
    }
    const auto numbers = x.elements<int64_t>();
    Strings out;
    for (size_t at = 0; at + length <= numbers.size() && length > 0; at += length) {
      const auto found = texts.find({numbers.begin() + static_cast<ptrdiff_t>(at),
                                     numbers.begin() + static_cast<ptrdiff_t>(at + length)});
      out.push_back(found == texts.end() ? unknown : found->second);
    }
    return OneValue(StringTensor(Shape(dims), std::move(out)));
  });
}

}  // namespace onnxd
