// The subgraphs of com.microsoft's generation operators (GreedySearch, Sampling, BeamSearch,
// WhisperBeamSearch), run token by token. Source: onnxruntime's ContribOperators document and its
// convert_generation.py, which fixes the names of the subgraphs' inputs and outputs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/session/control_flow_nodes.h"

namespace onnxd {

// Tokens of every row, all rows equally long: [rows, length].
struct TokenRows {
  int64_t rows = 0, length = 0;
  std::vector<int32_t> tokens;
};

// The attributes encoder, decoder and init_decoder, compiled. Immutable; any thread.
struct TokenGraphs {
  Body decoder;
  std::optional<Body> init_decoder, encoder;
};

Result<TokenGraphs> MakeTokenGraphs(const Node& node, const ExecutorOptions& options);

// One generation. A row is a sequence that grows; what the model remembers of it is kept here.
// Inputs called past_X of the decoder receive what was last returned as present_X.
class TokenModel {
 public:
  // All must outlive the model.
  TokenModel(const TokenGraphs& graphs, std::span<const Value> captures, const RunOptions& options)
      : graphs_(graphs), captures_(captures), options_(options) {}

  // Runs the encoder on `input` (tokens, or features of any type) of `rows` rows; `mask`: which
  // tokens count, int32, or absent. `start`: the decoder's first tokens. Then every row is
  // repeated `copies` times.
  Status Encode(const Value& input, const Value& mask, const TokenRows& start, int64_t copies);

  // Logits behind the last token of every row, [rows, vocabulary]. The first call passes all tokens
  // of the rows; later ones one token a row.
  Result<std::vector<float>> Next(const TokenRows& tokens);

  // For decoders with attention_mask and position_ids, before the first call of Next: the mask and
  // which tokens have positions, both [rows, length].
  void Mask(const std::vector<int32_t>& mask, const std::vector<int32_t>& real, int64_t rows);

  // The logits that the encoder's graph returned, once; absent when it returns none.
  std::optional<std::vector<float>> TakeFirstLogits();

  // Row i goes on where rows[i] was.
  Status Reorder(const std::vector<int64_t>& rows);

 private:
  Result<Value> PastOf(const Graph& graph, ValueId input, const std::string& name, int64_t rows);
  Result<std::vector<Value>> DecoderInputs(const Body& body, const TokenRows& tokens);
  Result<std::vector<float>> LastLogits(const Value& value) const;
  Status KeepOutputs(const Body& body, std::vector<Value> outputs);

  const TokenGraphs& graphs_;
  std::span<const Value> captures_;
  const RunOptions& options_;
  std::map<std::string, Value> state_;  // by the name behind "present_", or the whole name
  std::vector<int32_t> mask_, positions_, next_positions_;
  std::optional<std::vector<float>> first_logits_;
  bool started_ = false;
};

}  // namespace onnxd
