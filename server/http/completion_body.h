// What a request of OpenAI's completions says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/http/completions.h"

namespace onnxd {

struct CompletionBody {
  std::string model;
  // One for each answer: those of one prompt follow each other.
  std::vector<std::string> prompts;  // empty texts where the options have tokens
  GenerationOptions options;
  int64_t choices = 1;  // of a prompt
  bool streams = false;
  bool reports_usage = false;  // at the end of a stream
};

// kInvalidArgument; kUnimplemented for what the API knows and is not there. Nesting of more than
// `max_depth` is refused.
Result<CompletionBody> ReadCompletionBody(const HttpBody& body, CompletionForm form,
                                          int64_t max_depth);

}  // namespace onnxd
