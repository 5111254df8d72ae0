// onnxd tokenizer TOKENIZER OUTPUT: a tokenizer.json as a model, from texts to the inputs of an
// encoder.
#include <cstdio>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "runtime/format/model_writer.h"
#include "server/texts/tokenizer_model.h"
#include "tools/command.h"

namespace onnxd {
namespace {

Status RunTokenizer(const TokenizerFlags& flags) {
  ONNXD_ASSIGN_OR_RETURN(const TokenizerModel made,
                         MakeTokenizerModel(flags.tokenizer, {flags.pairs, flags.max_length}));
  ONNXD_ASSIGN_OR_RETURN(const std::string bytes, WriteModel(made.model));
  ONNXD_RETURN_IF_ERROR(WriteFile(flags.output, bytes));
  std::printf("%s: text%s [batch] -> input_ids, attention_mask, token_type_ids [batch, tokens]%s\n",
              flags.output.c_str(), flags.pairs ? ", text_pair" : "",
              made.max_length > 0 ? StrCat(", ", made.max_length, " tokens at most").c_str() : "");
  return Status::Ok();
}

}  // namespace

int WriteTokenizer(const TokenizerFlags& flags) {
  const Status status = RunTokenizer(flags);
  return status.ok() ? kExitOk : Fail(status.WithContext(flags.tokenizer));
}

}  // namespace onnxd
