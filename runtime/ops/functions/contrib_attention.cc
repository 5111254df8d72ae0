// com.microsoft MultiHeadAttention as ai.onnx Attention, for devices that have that one. Source of
// the semantics: onnxruntime's ContribOperators document.
#include "runtime/base/str_cat.h"
#include "runtime/ops/functions.h"
#include "runtime/ops/functions/dimensions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

// Inputs 0 to 2 with their parts of the bias, input 3, which stand in it one behind another.
Status AddBiases(FunctionBody& body, Operand (&projections)[3]) {
  int64_t at = 0;
  for (size_t i = 0; i < 3; ++i) {
    const int64_t width = body.InputDim(i, 2);
    if (body.InputRank(i) != 3 || width < 1) {
      return Unimplemented(StrCat("a bias, and operand ", i, " of an unknown shape"));
    }
    const Operand part =
        Slice(body, body.Input(3), body.Integers({at}), body.Integers({at + width}), 0);
    projections[i] = body.Call("Add", {projections[i], part});
    at += width;
  }
  return Status::Ok();
}

// What the padding mask, input 4, and input 5 add to the scores; absent where there is neither.
Result<Operand> ScoreBias(FunctionBody& body, DataType type) {
  const Operand added = body.Input(5);
  if (!body.HasInput(4)) return added;
  const int rank = body.InputRank(4);
  if (rank != 2 && rank != 3) return Unimplemented(StrCat("a padding mask of rank ", rank));
  const double filter = body.attributes().Float("mask_filter_value", -10000.0f);
  const Operand seen = body.Cast(body.Input(4), DataType::kBool);
  Operand hidden = body.Call("Where", {seen, body.Number(0, type), body.Number(filter, type)});
  hidden = Unsqueeze(body, hidden, 1);
  if (rank == 2) hidden = Unsqueeze(body, hidden, 1);
  return added.absent() ? hidden : body.Call("Add", {hidden, added});
}

Status MultiHeadAttention(FunctionBody& body) {
  const int64_t heads = body.attributes().Int("num_heads", 0);
  const DataType type = body.InputType(0);
  if (type == DataType::kUndefined || heads < 1 || !body.HasInput(1) || !body.HasInput(2)) {
    return Unimplemented("packed projections, or an unknown type");
  }
  for (size_t i = 0; i < 3; ++i) {
    // Keys and values that stand by head come from another sequence.
    if (body.InputRank(i) != 3) return Unimplemented(StrCat("operand ", i, " is not of rank 3"));
  }
  for (size_t i = 8; i < 10; ++i) {
    if (body.HasInput(i)) return Unimplemented("a cache that is written in place");
  }
  if (body.HasOutput(3)) return Unimplemented("the scores as an output");
  Operand projections[3] = {body.Input(0), body.Input(1), body.Input(2)};
  if (body.HasInput(3)) ONNXD_RETURN_IF_ERROR(AddBiases(body, projections));
  ONNXD_ASSIGN_OR_RETURN(const Operand bias, ScoreBias(body, type));
  Attributes attributes = MakeAttributes({{"q_num_heads", heads}, {"kv_num_heads", heads}});
  const float scale = body.attributes().Float("scale", 0);
  if (scale != 0) attributes.Set("scale", scale);
  if (body.attributes().Int("unidirectional", 0) != 0) attributes.Set("is_causal", int64_t{1});
  std::vector<Operand> inputs = {projections[0], projections[1], projections[2], bias};
  if (body.HasInput(6)) {
    inputs.push_back(body.Input(6));
    inputs.push_back(body.Input(7));
  }
  size_t outputs = 1;
  for (size_t i = 1; i < 3; ++i) {
    if (body.HasOutput(i)) outputs = 3;
  }
  const auto results = body.CallMany("Attention", inputs, outputs, std::move(attributes));
  for (size_t i = 0; i < outputs; ++i) {
    if (i == 0 || body.HasOutput(i)) body.Return(i, results[i]);
  }
  return Status::Ok();
}

constexpr FunctionEntry kFunctions[] = {
    {"com.microsoft", "MultiHeadAttention", 1, 1, MultiHeadAttention},
};

}  // namespace

std::span<const FunctionEntry> ContribAttentionFunctions() { return kFunctions; }

}  // namespace onnxd
