// PreTokenizers: what cuts text into the pieces within which tokens are looked for. Names and
// semantics are those of Hugging Face's tokenizers library.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/text/aligned_text.h"

namespace onnxd {

// Characters [begin, end).
struct Range {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const Range&) const = default;
};

// A text and its pieces, in order; what lies between them is dropped.
struct Pieces {
  AlignedText text;
  std::vector<Range> ranges;
  bool begins_text = true;  // nothing, also no added token, stood before it
};

// Immutable; any thread.
using PreTokenizer = std::function<void(Pieces&)>;
// Appends what matches within a range, from left to right, not overlapping.
using Matcher = std::function<void(const AlignedText&, Range, std::vector<Range>&)>;

// What becomes of what matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

PreTokenizer Split(Matcher matcher, SplitBehavior behavior, bool invert = false);
// Each character by itself.
Matcher Characters(bool (*matches)(char32_t));
// Neighbours together.
Matcher CharacterRuns(bool (*matches)(char32_t));
Matcher Literal(std::string text);
// A regular expression as Oniguruma reads it: over Unicode. kUnimplemented for what needs
// backtracking, such as lookaround, but for `\s+(?!\S)|\s+`: white space up to the last character
// before a word.
Result<Matcher> Expression(const std::string& pattern);
// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
Matcher Gpt2Words();
// 's|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+
Matcher ClipWords();

PreTokenizer InTurn(std::vector<PreTokenizer> steps);
// Symbols of ASCII, and what Unicode calls punctuation.
bool IsSplitPunctuation(char32_t value);
PreTokenizer BertPreTokenizer();
enum class PrependScheme { kNever, kFirst, kAlways };
// Blanks become `replacement`, which begins a piece where `split` says so.
PreTokenizer Metaspace(std::string replacement, PrependScheme scheme, bool split);
// A blank before each piece that begins without white space.
PreTokenizer PrefixSpace();
// Bytes written with ByteCharacters, for models that do not look at bytes themselves.
PreTokenizer WriteBytes();

}  // namespace onnxd
