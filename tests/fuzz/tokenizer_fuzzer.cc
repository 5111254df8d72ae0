// Fuzz target: any bytes as a tokenizer.json or, where they do not begin with '{', as a model of
// sentencepiece, behind a line with a text for it.
#include "runtime/base/str_cat.h"
#include "runtime/text/sentencepiece.h"
#include "runtime/text/tokenizer_json.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/served.h"

namespace onnxd {
namespace {

void CheckSpan(uint64_t begin, uint64_t end, uint64_t size) {
  if (begin > end || end > size) Finding(StrCat("[", begin, ", ", end, ") of ", size));
}

void FuzzTokenizerJson(std::string_view bytes, std::string_view text) {
  const auto made = ParseTokenizerJson(bytes, "");
  if (!made.ok()) return;
  for (const auto& encoding : {made->tokenizer->Encode(text),
                               made->tokenizer->EncodePair(text, text.substr(text.size() / 2))}) {
    if (!encoding.ok()) continue;
    for (const TextSpan& offset : encoding->offsets)
      CheckSpan(offset.begin, offset.end, text.size());
  }
}

void FuzzSentencepiece(std::string_view bytes, std::string_view text) {
  auto spec = SentencepieceSpec::Parse(bytes);
  if (!spec.ok()) return;
  const auto pieces = static_cast<int64_t>(spec->pieces.size());
  const auto model = Sentencepiece::Make(std::move(*spec));
  if (!model.ok()) return;
  std::vector<int64_t> ids;
  for (const Token& token : (*model)->Encode(text)) {
    CheckSpan(token.begin, token.end, text.size());
    if (token.id < 0 || token.id >= pieces) Finding(StrCat("token ", token.id, " of ", pieces));
    ids.push_back(token.id);
  }
  if (!(*model)->Decode(ids).ok()) Finding("its own tokens do not decode");
}

}  // namespace

void FuzzTokenizer(std::string_view bytes) {
  const size_t line = bytes.find('\n');
  if (line == std::string_view::npos) return;
  const std::string_view text = bytes.substr(0, line), file = bytes.substr(line + 1);
  if (file.starts_with('{')) {
    FuzzTokenizerJson(file, text);
  } else {
    FuzzSentencepiece(file, text);
  }
}

}  // namespace onnxd
