// Normalizers: what is done to text before it is cut into pieces. Names and semantics are those of
// Hugging Face's tokenizers library.
#pragma once

#include <functional>

#include "runtime/text/aligned_text.h"
#include "runtime/text/pre_tokenizers.h"

namespace onnxd {

// Immutable; any thread.
using Normalizer = std::function<void(AlignedText&)>;

struct BertNormalizerOptions {
  bool clean_text = true;            // control characters go, white space becomes a blank
  bool handle_chinese_chars = true;  // blanks around ideographs
  bool strip_accents = true;
  bool lowercase = true;
};

Normalizer BertNormalizer(BertNormalizerOptions options);
Normalizer Form(NormalForm form);
Normalizer Lowercase();
// All marks; the text has to be decomposed for accents to be such.
Normalizer StripAccents();
Normalizer StripEnds(bool left, bool right);
Normalizer PrependText(std::string prefix);
Normalizer ReplaceMatches(Matcher matcher, std::string to);
// What sentencepiece's nmt_ rules do besides Unicode's: odd blanks become blanks, controls go.
Normalizer Nmt();
Normalizer InTurn(std::vector<Normalizer> steps);

// What writes nothing, but for tabs and line ends.
bool IsControl(char32_t value);
// The blocks of ideographs, without kana and hangul.
bool IsChineseCharacter(char32_t value);

}  // namespace onnxd
