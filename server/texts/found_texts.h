// What the files beside a model say of the texts that it takes, as the libraries of Hugging Face
// and sentence-transformers save them:
//
//   tokenizer.json               without which it takes tokens
//   modules.json                 what follows the encoder: pooling, normalization
//   1_Pooling/config.json        the folder is named there; from a hub also 1_Pooling_config.json
//   sentence_bert_config.json    max_seq_length
// Source: https://www.sbert.net/docs/package_reference/sentence_transformer/models.html
#pragma once

#include <string>
#include <vector>

#include "runtime/session/inference_session.h"
#include "server/config/text_settings.h"

namespace onnxd {

// Where these files are: beside the model's, or above it where the hub's folder `onnx` has it.
std::string TextFolderOf(const std::string& model_path);

bool HasTokenizer(const std::string& folder);

struct FoundTexts {
  TextSettings settings;  // inactive: nothing beside it says so, or clients have to send tokens
  std::string warning;    // what the files want and is not done; may be empty
};

// `wanted` with what it leaves open. Only a model all of whose inputs a tokenizer makes takes
// texts; pooling is for one with vectors of tokens and without `sentence_embedding`.
FoundTexts FindTexts(const TextSettings& wanted, const std::string& folder,
                     const std::vector<TensorSignature>& inputs,
                     const std::vector<TensorSignature>& outputs);

}  // namespace onnxd
