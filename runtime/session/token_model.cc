#include "runtime/session/token_model.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"
#include "runtime/tensor/copy_elements.h"

namespace onnxd {
namespace {

constexpr std::string_view kPast = "past_", kPresent = "present_";

// [2, rows, ...] for a key and value in one; [rows, ...] otherwise.
int RowAxis(const Shape& shape) { return shape.rank() == 5 ? 1 : 0; }

Result<Tensor> TakeRows(const Tensor& tensor, const std::vector<int64_t>& rows) {
  const Shape& shape = tensor.shape();
  const int axis = RowAxis(shape);
  if (shape.rank() <= axis) return InvalidArgument("a state of the decoder has no rows");
  Shape out = shape;
  out[axis] = static_cast<int64_t>(rows.size());
  ONNXD_ASSIGN_OR_RETURN(Tensor result, Tensor::Create(tensor.type(), out));
  const int64_t inner = shape.ElementCount(axis + 1, shape.rank());
  for (int64_t block = 0; block < shape.ElementCount(0, axis); ++block) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] < 0 || rows[i] >= shape[axis]) return InvalidArgument("a state has too few rows");
      CopyElements(tensor, (block * shape[axis] + rows[i]) * inner, result,
                   (block * out[axis] + static_cast<int64_t>(i)) * inner, inner);
    }
  }
  return result;
}

Result<Value> Ints(const Shape& shape, const std::vector<int32_t>& elements) {
  if (shape.ElementCount() != static_cast<int64_t>(elements.size())) {
    return InvalidArgument(StrCat("the tokens of a row do not fit ", shape.ToString()));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(DataType::kInt32, shape));
  std::copy(elements.begin(), elements.end(), tensor.mutable_data<int32_t>());
  return Value(std::move(tensor));
}

std::string Rest(const std::string& name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

}  // namespace

Result<TokenGraphs> MakeTokenGraphs(const Node& node, const ExecutorOptions& options) {
  TokenGraphs graphs;
  for (const char* name : {"decoder", "init_decoder", "encoder"}) {
    if (node.attributes.Has(name) && node.attributes.Subgraph(name)->outputs.empty()) {
      return InvalidArgument(StrCat(Describe(node), ": the graph '", name, "' has no outputs"));
    }
  }
  ONNXD_ASSIGN_OR_RETURN(graphs.decoder, MakeBody(node, "decoder", options));
  if (node.attributes.Has("init_decoder")) {
    ONNXD_ASSIGN_OR_RETURN(graphs.init_decoder, MakeBody(node, "init_decoder", options));
  }
  if (node.attributes.Has("encoder")) {
    ONNXD_ASSIGN_OR_RETURN(graphs.encoder, MakeBody(node, "encoder", options));
  }
  return graphs;
}

Status TokenModel::Encode(const Value& input, const Value& mask, const TokenRows& start,
                          int64_t copies) {
  const Body& body = *graphs_.encoder;
  std::vector<Value> inputs;
  for (const ValueId id : body.graph->inputs) {
    const std::string& name = body.graph->value(id).name;
    if (name == "encoder_attention_mask") {
      if (mask.absent()) return InvalidArgument("the encoder takes a mask for its tokens");
      inputs.push_back(mask);
    } else if (name == "decoder_input_ids") {
      ONNXD_ASSIGN_OR_RETURN(Value ids, Ints(Shape{start.rows, start.length}, start.tokens));
      inputs.push_back(std::move(ids));
    } else {
      inputs.push_back(input);
    }
  }
  ONNXD_ASSIGN_OR_RETURN(std::vector<Value> outputs,
                         body.Run(std::move(inputs), captures_, options_));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (body.graph->value(body.graph->outputs[i]).name != "logits") continue;
    ONNXD_ASSIGN_OR_RETURN(first_logits_, LastLogits(outputs[i]));
  }
  ONNXD_RETURN_IF_ERROR(KeepOutputs(body, std::move(outputs)));
  if (!mask.absent()) state_["encoder_attention_mask"] = mask;
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < start.rows; ++row) {
    rows.insert(rows.end(), static_cast<size_t>(copies), row);
  }
  // The decoder goes on behind what the encoder's graph has decoded.
  started_ = first_logits_.has_value();
  if (first_logits_ && start.rows > 0) {
    const size_t width = first_logits_->size() / static_cast<size_t>(start.rows);
    std::vector<float> repeated;
    for (const int64_t row : rows) {
      const auto from = first_logits_->begin() + row * static_cast<int64_t>(width);
      repeated.insert(repeated.end(), from, from + static_cast<int64_t>(width));
    }
    first_logits_ = std::move(repeated);
  }
  return Reorder(rows);
}

std::optional<std::vector<float>> TokenModel::TakeFirstLogits() {
  auto logits = std::move(first_logits_);
  first_logits_.reset();
  return logits;
}

// What is remembered, or nothing yet: no positions along the axis before the last.
Result<Value> TokenModel::PastOf(const Graph& graph, ValueId input, const std::string& name,
                                 int64_t rows) {
  const auto known = state_.find(Rest(name, kPast));
  if (known != state_.end()) return known->second;
  const ValueType& type = graph.value(input).type;
  const size_t rank = type.shape ? type.shape->size() : 0;
  if (!type.is_tensor() || !name.starts_with(kPast) || (rank != 4 && rank != 5)) {
    return Unimplemented(StrCat("the decoder's input '", name, "' is not supported"));
  }
  Shape shape;
  for (size_t i = 0; i < rank; ++i) {
    const Dimension& dimension = (*type.shape)[i];
    const bool is_row = i == (rank == 5 ? 1u : 0u);
    if (!is_row && i != rank - 2 && !dimension.known()) {
      return InvalidArgument(StrCat("'", name, "' does not say its heads and their size"));
    }
    shape.Append(is_row ? rows : i == rank - 2 ? 0 : dimension.value);
  }
  ONNXD_RETURN_IF_ERROR(shape.Validate());
  ONNXD_ASSIGN_OR_RETURN(Tensor empty, Tensor::Create(type.element, shape));
  return Value(std::move(empty));
}

Result<std::vector<Value>> TokenModel::DecoderInputs(const Body& body, const TokenRows& tokens) {
  std::vector<Value> inputs;
  for (const ValueId id : body.graph->inputs) {
    const std::string& name = body.graph->value(id).name;
    Result<Value> value = Value();
    if (name == "input_ids") {
      value = Ints(Shape{tokens.rows, tokens.length}, tokens.tokens);
    } else if (name == "position_ids") {
      value = Ints(Shape{tokens.rows, tokens.length}, positions_);
    } else if (name == "attention_mask") {
      const auto width = static_cast<int64_t>(mask_.size()) / std::max<int64_t>(tokens.rows, 1);
      value = Ints(Shape{tokens.rows, width}, mask_);
    } else {
      value = PastOf(*body.graph, id, name, tokens.rows);
    }
    if (!value.ok()) return value.status();
    inputs.push_back(std::move(*value));
  }
  return inputs;
}

void TokenModel::Mask(const std::vector<int32_t>& mask, const std::vector<int32_t>& real,
                      int64_t rows) {
  mask_ = mask;
  const int64_t length = rows == 0 ? 0 : static_cast<int64_t>(real.size()) / rows;
  for (int64_t row = 0; row < rows; ++row) {
    int32_t position = 0;
    for (int64_t i = 0; i < length; ++i) {
      const bool counts = real[static_cast<size_t>(row * length + i)] != 0;
      positions_.push_back(counts ? position++ : 0);
    }
    next_positions_.push_back(position);
  }
}

Result<std::vector<float>> TokenModel::Next(const TokenRows& tokens) {
  const Body& body = !started_ && graphs_.init_decoder ? *graphs_.init_decoder : graphs_.decoder;
  ONNXD_ASSIGN_OR_RETURN(std::vector<Value> inputs, DecoderInputs(body, tokens));
  ONNXD_ASSIGN_OR_RETURN(std::vector<Value> outputs,
                         body.Run(std::move(inputs), captures_, options_));
  ONNXD_ASSIGN_OR_RETURN(std::vector<float> logits, LastLogits(outputs[0]));
  ONNXD_RETURN_IF_ERROR(KeepOutputs(body, std::move(outputs)));
  // The mask and the position of the token that follows.
  const auto rows = static_cast<int64_t>(next_positions_.size());
  const int64_t width = rows == 0 ? 0 : static_cast<int64_t>(mask_.size()) / rows;
  std::vector<int32_t> longer;
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = mask_.begin() + row * width;
    longer.insert(longer.end(), begin, begin + width);
    longer.push_back(1);
  }
  mask_ = std::move(longer);
  positions_ = next_positions_;
  for (int32_t& position : next_positions_) ++position;
  started_ = true;
  return logits;
}

// `value`: [rows, length, vocabulary].
Result<std::vector<float>> TokenModel::LastLogits(const Value& value) const {
  if (!value.is_tensor() || value.tensor().shape().rank() != 3 ||
      value.tensor().shape().ElementCount() == 0) {
    return InvalidArgument("the decoder's first output is no [rows, length, vocabulary]");
  }
  const Shape& shape = value.tensor().shape();
  ONNXD_ASSIGN_OR_RETURN(const Tensor floats, Converted(value.tensor(), DataType::kFloat));
  std::vector<float> logits;
  for (int64_t row = 0; row < shape[0]; ++row) {
    const float* from = floats.data<float>() + ((row + 1) * shape[1] - 1) * shape[2];
    logits.insert(logits.end(), from, from + shape[2]);
  }
  return logits;
}

Status TokenModel::KeepOutputs(const Body& body, std::vector<Value> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = body.graph->value(body.graph->outputs[i]).name;
    if (name == "logits") continue;
    if (!outputs[i].is_tensor()) return InvalidArgument(StrCat("'", name, "' is no tensor"));
    state_[Rest(name, kPresent)] = std::move(outputs[i]);
  }
  return Status::Ok();
}

Status TokenModel::Reorder(const std::vector<int64_t>& rows) {
  bool same = true;
  for (size_t i = 0; i < rows.size(); ++i) same &= rows[i] == static_cast<int64_t>(i);
  for (auto& [name, value] : state_) {
    const Shape& shape = value.tensor().shape();
    const int axis = RowAxis(shape);
    if (same && shape.rank() > axis && shape[axis] == static_cast<int64_t>(rows.size())) continue;
    ONNXD_ASSIGN_OR_RETURN(Tensor taken, TakeRows(value.tensor(), rows));
    value = Value(std::move(taken));
  }
  const auto take = [&](std::vector<int32_t>& elements, size_t width) {
    std::vector<int32_t> taken;
    for (const int64_t row : rows) {
      const auto from = elements.begin() + row * static_cast<int64_t>(width);
      taken.insert(taken.end(), from, from + static_cast<int64_t>(width));
    }
    elements = std::move(taken);
  };
  if (!next_positions_.empty() && !same) {
    take(mask_, mask_.size() / next_positions_.size());
    take(positions_, positions_.size() / next_positions_.size());
    take(next_positions_, 1);
  }
  return Status::Ok();
}

}  // namespace onnxd
