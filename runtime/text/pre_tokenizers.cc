#include "runtime/text/pre_tokenizers.h"

#include <algorithm>
#include <array>

#include "runtime/text/byte_pair_encoding.h"

namespace onnxd {
namespace {

struct Part {
  Range range;
  bool matches;
};

// Matches and what lies between them.
std::vector<Part> AllParts(Range range, const std::vector<Range>& matches, bool invert) {
  std::vector<Part> parts;
  size_t at = range.begin;
  for (const Range match : matches) {
    if (match.begin > at) parts.push_back({{at, match.begin}, invert});
    parts.push_back({match, !invert});
    at = match.end;
  }
  if (at < range.end) parts.push_back({{at, range.end}, invert});
  return parts;
}

std::vector<Range> Isolate(const std::vector<Part>& parts, bool keep_matches) {
  std::vector<Range> out;
  for (const Part& part : parts) {
    if (keep_matches || !part.matches) out.push_back(part.range);
  }
  return out;
}

std::vector<Range> MergeAlike(const std::vector<Part>& parts) {
  std::vector<Range> out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && parts[i].matches == parts[i - 1].matches) {
      out.back().end = parts[i].range.end;
    } else {
      out.push_back(parts[i].range);
    }
  }
  return out;
}

std::vector<Range> MergeWithPrevious(const std::vector<Part>& parts) {
  std::vector<Range> out;
  bool previous = false;
  for (const Part& part : parts) {
    if (part.matches && !previous && !out.empty()) {
      out.back().end = part.range.end;
    } else {
      out.push_back(part.range);
    }
    previous = part.matches;
  }
  return out;
}

std::vector<Range> MergeWithNext(const std::vector<Part>& parts) {
  std::vector<Range> out;
  bool next = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->matches && !next && !out.empty()) {
      out.back().begin = part->range.begin;
    } else {
      out.push_back(part->range);
    }
    next = part->matches;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Range> Divide(const std::vector<Part>& parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      return Isolate(parts, false);
    case SplitBehavior::kIsolated:
      return Isolate(parts, true);
    case SplitBehavior::kMergedWithPrevious:
      return MergeWithPrevious(parts);
    case SplitBehavior::kMergedWithNext:
      return MergeWithNext(parts);
    case SplitBehavior::kContiguous:
      return MergeAlike(parts);
  }
  return {};
}

// The length of a contraction such as 's or 'll at `at`; 0: none.
size_t Contraction(const std::vector<char32_t>& text, size_t at, size_t end) {
  if (text[at] != '\'' || at + 1 >= end) return 0;
  const char32_t first = text[at + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (at + 2 >= end) return 0;
  const char32_t second = text[at + 2];
  const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                   (first == 'l' && second == 'l');
  return two ? 3 : 0;
}

enum class Kind { kLetter, kNumber, kSpace, kSymbol };

Kind KindOf(char32_t c) {
  if (IsLetter(c)) return Kind::kLetter;
  if (IsNumber(c)) return Kind::kNumber;
  return IsWhitespace(c) ? Kind::kSpace : Kind::kSymbol;
}

size_t RunEnd(const std::vector<char32_t>& text, size_t at, size_t end) {
  const Kind kind = KindOf(text[at]);
  while (at < end && KindOf(text[at]) == kind) ++at;
  return at;
}

size_t Gpt2WordEnd(const std::vector<char32_t>& text, size_t at, size_t end) {
  if (const size_t length = Contraction(text, at, end)) return at + length;
  const size_t word = text[at] == ' ' && at + 1 < end ? at + 1 : at;
  if (KindOf(text[word]) != Kind::kSpace) return RunEnd(text, word, end);
  const size_t spaces = RunEnd(text, at, end);
  return spaces < end && spaces > at + 1 ? spaces - 1 : spaces;
}

// The symbol before each piece, or the first alone, that does not begin as `begins` says.
void PutBefore(Pieces& pieces, char32_t symbol, const std::function<bool(char32_t)>& begins,
               bool first_alone) {
  AlignedText out;
  for (Range& range : pieces.ranges) {
    const size_t begin = out.size();
    if (range.begin < range.end && !(first_alone && begin > 0) &&
        !begins(pieces.text.characters[range.begin])) {
      out.Append(symbol, pieces.text.source[range.begin]);
    }
    for (size_t i = range.begin; i < range.end; ++i) {
      out.Append(pieces.text.characters[i], pieces.text.source[i]);
    }
    range = {begin, out.size()};
  }
  pieces.text = std::move(out);
}

}  // namespace

PreTokenizer Split(Matcher matcher, SplitBehavior behavior, bool invert) {
  return [matcher = std::move(matcher), behavior, invert](Pieces& pieces) {
    std::vector<Range> divided, matches;
    for (const Range range : pieces.ranges) {
      matches.clear();
      matcher(pieces.text, range, matches);
      const std::vector<Range> parts = Divide(AllParts(range, matches, invert), behavior);
      divided.insert(divided.end(), parts.begin(), parts.end());
    }
    pieces.ranges = std::move(divided);
  };
}

Matcher Characters(bool (*matches)(char32_t)) {
  return [matches](const AlignedText& text, Range range, std::vector<Range>& out) {
    for (size_t i = range.begin; i < range.end; ++i) {
      if (matches(text.characters[i])) out.push_back({i, i + 1});
    }
  };
}

Matcher CharacterRuns(bool (*matches)(char32_t)) {
  return [matches](const AlignedText& text, Range range, std::vector<Range>& out) {
    for (size_t i = range.begin; i < range.end; ++i) {
      if (!matches(text.characters[i])) continue;
      const size_t begin = i;
      while (i < range.end && matches(text.characters[i])) ++i;
      out.push_back({begin, i});
    }
  };
}

Matcher Literal(std::string text) {
  return [pattern = AlignedText::From(text).characters](const AlignedText& in, Range range,
                                                        std::vector<Range>& out) {
    if (pattern.empty()) return;
    const auto end = in.characters.begin() + static_cast<ptrdiff_t>(range.end);
    auto at = in.characters.begin() + static_cast<ptrdiff_t>(range.begin);
    while ((at = std::search(at, end, pattern.begin(), pattern.end())) != end) {
      const auto begin = static_cast<size_t>(at - in.characters.begin());
      out.push_back({begin, begin + pattern.size()});
      at += static_cast<ptrdiff_t>(pattern.size());
    }
  };
}

Matcher Gpt2Words() {
  return [](const AlignedText& text, Range range, std::vector<Range>& out) {
    for (size_t at = range.begin; at < range.end;) {
      const size_t end = Gpt2WordEnd(text.characters, at, range.end);
      out.push_back({at, end});
      at = end;
    }
  };
}

Matcher ClipWords() {
  return [](const AlignedText& text, Range range, std::vector<Range>& out) {
    for (size_t at = range.begin; at < range.end;) {
      const Kind kind = KindOf(text.characters[at]);
      size_t end = at + 1;
      if (const size_t length = Contraction(text.characters, at, range.end)) {
        end = at + length;
      } else if (kind != Kind::kNumber) {
        end = RunEnd(text.characters, at, range.end);
      }
      if (kind != Kind::kSpace) out.push_back({at, end});
      at = end;
    }
  };
}

PreTokenizer InTurn(std::vector<PreTokenizer> steps) {
  return [steps = std::move(steps)](Pieces& pieces) {
    for (const PreTokenizer& step : steps) step(pieces);
  };
}

bool IsSplitPunctuation(char32_t value) {
  const bool ascii = value > ' ' && value < 0x7f && !IsLetter(value) && !IsNumber(value);
  return ascii || IsPunctuation(value);
}

PreTokenizer BertPreTokenizer() {
  return InTurn({Split(Characters(IsWhitespace), SplitBehavior::kRemoved),
                 Split(Characters(IsSplitPunctuation), SplitBehavior::kIsolated)});
}

PreTokenizer PrefixSpace() {
  return [](Pieces& pieces) { PutBefore(pieces, ' ', IsWhitespace, false); };
}

PreTokenizer Metaspace(std::string replacement, PrependScheme scheme, bool split) {
  const AlignedText mark = AlignedText::From(replacement);
  const char32_t symbol = mark.size() == 0 ? U' ' : mark.characters[0];
  const PreTokenizer divide =
      Split(Literal(std::move(replacement)), SplitBehavior::kMergedWithNext);
  return [symbol, scheme, split, divide](Pieces& pieces) {
    std::replace(pieces.text.characters.begin(), pieces.text.characters.end(), U' ', symbol);
    const bool first = scheme == PrependScheme::kFirst;
    if (scheme == PrependScheme::kAlways || (first && pieces.begins_text)) {
      PutBefore(
          pieces, symbol, [symbol](char32_t c) { return c == symbol; }, first);
    }
    if (split) divide(pieces);
  };
}

PreTokenizer WriteBytes() {
  return [](Pieces& pieces) {
    AlignedText out;
    std::string bytes;
    for (Range& range : pieces.ranges) {
      const size_t begin = out.size();
      for (size_t i = range.begin; i < range.end; ++i) {
        bytes.clear();
        AppendCodePoint(pieces.text.characters[i], bytes);
        for (const char byte : bytes) {
          out.Append(ByteCharacters()[static_cast<unsigned char>(byte)], pieces.text.source[i]);
        }
      }
      range = {begin, out.size()};
    }
    pieces.text = std::move(out);
  };
}

}  // namespace onnxd
