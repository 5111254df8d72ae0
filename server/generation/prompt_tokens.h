// The tokens of a prompt: a run of a version's scheduled tokenizer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/generation/generation_plan.h"

namespace onnxd {

// The run's inputs. `is_chat`: the text is the JSON object that a chat template gets.
std::vector<Value> PromptOf(const std::string& text, bool is_chat);

// One output, int64 [tokens]. A text has the tokens around it that the tokenizer's file says, a
// conversation those that its template writes. kInvalidArgument for a conversation where there is
// no template, or one that the template refuses; errors of Tokenizer::Encode and Tensor::Create.
Result<std::vector<Value>> PromptTokens(const GenerationPlan& plan, std::span<const Value> inputs);

}  // namespace onnxd
