// LSTM, GRU and RNN. Source: ONNX LSTM-14 and its siblings; onnxruntime's ContribOperators document
// for com.microsoft DynamicQuantizeLSTM.
#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

Status Recurrent(InferenceContext& context) {
  const SymbolicShape* x = context.shape(0);
  const SymbolicShape* recurrence = context.shape(2);
  for (size_t i = 0; i < context.output_count(); ++i) {
    if (context.input(0).is_tensor()) context.SetElement(i, context.input(0).element);
  }
  if (x == nullptr || recurrence == nullptr) return Status::Ok();
  if (x->size() != 3 || recurrence->size() != 3) {
    return context.Fail("X and R must have rank 3");
  }
  const bool batch_first = context.attributes().Int("layout", 0) != 0;
  const std::string direction = context.attributes().String("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    return context.Fail(StrCat("unknown direction '", direction, "'"));
  }
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  const std::string& cell = context.node().op_type;
  const bool quantized = cell == "DynamicQuantizeLSTM";  // whose weights are transposed
  const int64_t gates = cell == "LSTM" || quantized ? 4 : cell == "GRU" ? 3 : 1;
  const Dimension hidden = (*recurrence)[quantized ? 1 : 2];
  const int64_t declared = context.attributes().Int("hidden_size", hidden.value);
  if (hidden.known() && declared != hidden.value) {
    return context.Fail(StrCat("hidden_size is ", declared, ", R has ", hidden.value));
  }
  const auto check = [&](size_t i, std::string_view name, SymbolicShape wanted) -> Status {
    const SymbolicShape* got = context.shape(i);
    if (got == nullptr) return Status::Ok();
    bool matches = got->size() == wanted.size();
    for (size_t j = 0; matches && j < wanted.size(); ++j) {
      matches = !(*got)[j].known() || !wanted[j].known() || (*got)[j].value == wanted[j].value;
    }
    if (matches) return Status::Ok();
    return context.Fail(
        StrCat("input '", name, "' has shape ", ToString(*got), ", expected ", ToString(wanted)));
  };
  const Dimension sequence = (*x)[batch_first ? 1 : 0];
  const Dimension batch = (*x)[batch_first ? 0 : 1];
  const auto times = [&](int64_t factor) {
    return hidden.known() ? Dimension(factor * hidden.value) : Dimension();
  };
  const auto weights = [&](Dimension depth) {
    return quantized ? SymbolicShape{directions, depth, times(gates)}
                     : SymbolicShape{directions, times(gates), depth};
  };
  ONNXD_RETURN_IF_ERROR(check(1, "W", weights((*x)[2])));
  ONNXD_RETURN_IF_ERROR(check(2, "R", weights(hidden)));
  ONNXD_RETURN_IF_ERROR(check(3, "B", {directions, times(2 * gates)}));
  ONNXD_RETURN_IF_ERROR(check(4, "sequence_lens", {batch}));
  const SymbolicShape state = batch_first ? SymbolicShape{batch, directions, hidden}
                                          : SymbolicShape{directions, batch, hidden};
  ONNXD_RETURN_IF_ERROR(check(5, "initial_h", state));
  if (gates == 4) {
    ONNXD_RETURN_IF_ERROR(check(6, "initial_c", state));
    ONNXD_RETURN_IF_ERROR(check(7, "P", {directions, times(3)}));
  }
  context.SetShape(0, batch_first ? SymbolicShape{batch, sequence, directions, hidden}
                                  : SymbolicShape{sequence, directions, batch, hidden});
  context.SetShape(1, state);
  context.SetShape(2, state);
  return Status::Ok();
}

// A scale or zero point per direction, or per direction and column.
Status CheckFormats(InferenceContext& context, int64_t directions) {
  for (size_t i = 8; i < 12; ++i) {
    const SymbolicShape* got = context.shape(i);
    if (got == nullptr) continue;
    const SymbolicShape* columns = context.shape(i < 10 ? 1 : 2);
    bool fits = got->size() == 1 || got->size() == 2;
    if (fits && (*got)[0].known()) fits = (*got)[0].value == directions;
    if (fits && got->size() == 2 && columns != nullptr) {
      const Dimension& width = (*columns)[2];
      fits = !(*got)[1].known() || !width.known() || (*got)[1].value == width.value;
    }
    if (!fits) {
      return context.Fail(StrCat("input ", i, " has shape ", ToString(*got),
                                 ", expected a number per direction, or per direction and column"));
    }
  }
  return Status::Ok();
}

Status QuantizedLstm(InferenceContext& context) {
  ONNXD_RETURN_IF_ERROR(Recurrent(context));
  const SymbolicShape* weights = context.shape(1);
  if (weights == nullptr || weights->size() != 3) return Status::Ok();
  return CheckFormats(context, (*weights)[0].known() ? (*weights)[0].value : 1);
}

constexpr InferenceRule kRules[] = {
    {"", "GRU", Recurrent},
    {"", "LSTM", Recurrent},
    {"", "RNN", Recurrent},
    {"com.microsoft", "DynamicQuantizeLSTM", QuantizedLstm},
};

}  // namespace

std::span<const InferenceRule> RecurrentRules() { return kRules; }

}  // namespace onnxd
