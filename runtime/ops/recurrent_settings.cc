#include "runtime/ops/recurrent_settings.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

Result<GateFunction> MakeGateFunction(const std::string& name, const float* alpha,
                                      const float* beta) {
  struct Known {
    const char* name;
    float alpha, beta;
  };
  static constexpr Known kKnown[] = {{"Sigmoid", 0, 0},       {"Tanh", 0, 0},
                                     {"Relu", 0, 0},          {"Affine", 1, 0},
                                     {"LeakyRelu", 0.01f, 0}, {"ThresholdedRelu", 1, 0},
                                     {"ScaledTanh", 1, 1},    {"HardSigmoid", 0.2f, 0.5f},
                                     {"Elu", 1, 0},           {"Softsign", 0, 0},
                                     {"Softplus", 0, 0}};
  for (const Known& known : kKnown) {
    if (name == known.name) {
      return GateFunction{name, alpha ? *alpha : known.alpha, beta ? *beta : known.beta};
    }
  }
  return Unimplemented(StrCat("activation '", name, "' is unknown"));
}

}  // namespace

Result<RecurrentSettings> ReadRecurrentSettings(const Node& node) {
  RecurrentSettings s;
  s.cell = node.op_type == "GRU"   ? RecurrentCell::kGru
           : node.op_type == "RNN" ? RecurrentCell::kRnn
                                   : RecurrentCell::kLstm;
  s.gates = s.cell == RecurrentCell::kLstm ? 4 : s.cell == RecurrentCell::kGru ? 3 : 1;
  const std::string direction = node.attributes.String("direction", "forward");
  s.directions = direction == "bidirectional" ? 2 : 1;
  s.reverse_first = direction == "reverse";
  s.batch_first = node.attributes.Int("layout", 0) != 0;
  s.linear_before_reset = node.attributes.Int("linear_before_reset", 0) != 0;
  s.input_forget = node.attributes.Int("input_forget", 0) != 0;
  s.clip = node.attributes.Float("clip", 0.0f);
  std::vector<std::string> names = node.attributes.Strings("activations");
  const std::vector<std::string> defaults =
      s.cell == RecurrentCell::kLstm  ? std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"}
      : s.cell == RecurrentCell::kGru ? std::vector<std::string>{"Sigmoid", "Tanh"}
                                      : std::vector<std::string>{"Tanh"};
  if (names.empty()) {
    for (int64_t d = 0; d < s.directions; ++d) {
      names.insert(names.end(), defaults.begin(), defaults.end());
    }
  }
  if (names.size() != defaults.size() * static_cast<size_t>(s.directions)) {
    return InvalidArgument(
        StrCat(Describe(node), ": 'activations' has ", names.size(), " entries"));
  }
  const auto alphas = node.attributes.Floats("activation_alpha");
  const auto betas = node.attributes.Floats("activation_beta");
  for (size_t i = 0; i < names.size(); ++i) {
    ONNXD_ASSIGN_OR_RETURN(GateFunction function,
                           MakeGateFunction(names[i], i < alphas.size() ? &alphas[i] : nullptr,
                                            i < betas.size() ? &betas[i] : nullptr));
    s.functions.push_back(std::move(function));
  }
  return s;
}

}  // namespace onnxd
