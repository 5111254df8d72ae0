// Activations and other elementwise operators with ONNX's own function bodies.
#include <cmath>
#include <numbers>

#include "runtime/ops/functions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

// The first input and constants of its type: what most activations need. 16-bit numbers are
// computed as float and rounded once.
struct Activation {
  explicit Activation(FunctionBody& b)
      : body(b),
        type(b.InputType(0)),
        narrow(type == DataType::kFloat16 || type == DataType::kBfloat16),
        x(narrow ? b.Cast(b.Input(0), DataType::kFloat) : b.Input(0)),
        zero(Number(0)) {}

  Operand Number(double value) const {
    return body.Number(value, narrow ? DataType::kFloat : type);
  }
  Operand Attribute(const char* name, float fallback) const {
    return Number(static_cast<double>(body.attributes().Float(name, fallback)));
  }
  Operand operator()(const char* op, Operand a, Operand b) const { return body.Call(op, {a, b}); }
  Operand operator()(const char* op, Operand a) const { return body.Call(op, {a}); }
  Operand Where(Operand condition, Operand yes, Operand no) const {
    return body.Call("Where", {condition, yes, no});
  }
  Status Done(Operand y) const {
    body.Return(0, narrow ? body.Cast(y, type) : y);
    return Status::Ok();
  }

  FunctionBody& body;
  DataType type;
  bool narrow;
  Operand x, zero;
};

Status Relu(FunctionBody& body) {
  const Activation f(body);
  return f.Done(f("Max", f.x, f.zero));
}

Status LeakyRelu(FunctionBody& body) {
  const Activation f(body);
  const Operand scaled = f("Mul", f.Attribute("alpha", 0.01f), f.x);
  return f.Done(f.Where(f("Less", f.x, f.zero), scaled, f.x));
}

Status PRelu(FunctionBody& body) {
  const Activation f(body);
  const Operand slope = f.narrow ? body.Cast(body.Input(1), DataType::kFloat) : body.Input(1);
  return f.Done(f.Where(f("Less", f.x, f.zero), f("Mul", slope, f.x), f.x));
}

Status Elu(FunctionBody& body) {
  const Activation f(body);
  const Operand below = f("Mul", f.Attribute("alpha", 1), f("Sub", f("Exp", f.x), f.Number(1)));
  return f.Done(f.Where(f("Less", f.x, f.zero), below, f.x));
}

Status Celu(FunctionBody& body) {
  const Activation f(body);
  const Operand alpha = f.Attribute("alpha", 1);
  const Operand below = f("Mul", alpha, f("Sub", f("Exp", f("Div", f.x, alpha)), f.Number(1)));
  return f.Done(f("Add", f("Max", f.zero, f.x), f("Min", f.zero, below)));
}

Status Selu(FunctionBody& body) {
  const Activation f(body);
  const Operand alpha = f.Attribute("alpha", 1.67326319217681884765625f);
  const Operand gamma = f.Attribute("gamma", 1.05070102214813232421875f);
  const Operand below = f("Sub", f("Mul", alpha, f("Exp", f.x)), alpha);
  return f.Done(f("Mul", gamma, f.Where(f("Less", f.x, f.zero), below, f.x)));
}

Operand HardSigmoidOf(const Activation& f, Operand alpha, Operand beta) {
  return f("Max", f.zero, f("Min", f.Number(1), f("Add", f("Mul", f.x, alpha), beta)));
}

Status HardSigmoid(FunctionBody& body) {
  const Activation f(body);
  return f.Done(HardSigmoidOf(f, f.Attribute("alpha", 0.2f), f.Attribute("beta", 0.5f)));
}

Status HardSwish(FunctionBody& body) {
  const Activation f(body);
  return f.Done(f("Mul", f.x, HardSigmoidOf(f, f.Number(1.0 / 6), f.Number(0.5))));
}

Status Mish(FunctionBody& body) {
  const Activation f(body);
  return f.Done(f("Mul", f.x, f("Tanh", f("Softplus", f.x))));
}

Status Shrink(FunctionBody& body) {
  const Activation f(body);
  const double lambda = static_cast<double>(body.attributes().Float("lambd", 0.5f));
  const Operand bias = f.Attribute("bias", 0);
  const Operand above = f.Where(f("Less", f.Number(lambda), f.x), f("Sub", f.x, bias), f.zero);
  return f.Done(f.Where(f("Less", f.x, f.Number(-lambda)), f("Add", f.x, bias), above));
}

Status Softplus(FunctionBody& body) {
  const Activation f(body);
  return f.Done(f("Log", f("Add", f("Exp", f.x), f.Number(1))));
}

Status Softsign(FunctionBody& body) {
  const Activation f(body);
  return f.Done(f("Div", f.x, f("Add", f.Number(1), f("Abs", f.x))));
}

Status Swish(FunctionBody& body) {
  const Activation f(body);
  return f.Done(f("Mul", f.x, f("Sigmoid", f("Mul", f.x, f.Attribute("alpha", 1)))));
}

Status ThresholdedRelu(FunctionBody& body) {
  const Activation f(body);
  return f.Done(f.Where(f("Less", f.Attribute("alpha", 1), f.x), f.x, f.zero));
}

Status Gelu(FunctionBody& body) {
  const Activation f(body);
  const Operand half = f.Number(0.5), one = f.Number(1);
  Operand inner;
  if (body.attributes().String("approximate", "none") == "tanh") {
    const Operand cube = f("Mul", f.Number(0.044715), f("Mul", f.x, f("Mul", f.x, f.x)));
    inner = f("Tanh", f("Mul", f.Number(std::sqrt(2 / std::numbers::pi)), f("Add", f.x, cube)));
  } else {
    inner = f("Erf", f("Div", f.x, f.Number(std::numbers::sqrt2)));
  }
  return f.Done(f("Mul", f("Mul", half, f.x), f("Add", one, inner)));
}

// min first: where the bounds cross, the upper one wins (Clip-13).
Status Clip(FunctionBody& body) {
  Operand y = body.Input(0);
  if (body.HasInput(1)) y = body.Call("Max", {y, body.Input(1)});
  if (body.HasInput(2)) y = body.Call("Min", {y, body.Input(2)});
  body.Return(0, y);
  return Status::Ok();
}

Status GreaterOrEqual(FunctionBody& body) {
  const Operand a = body.Input(0), b = body.Input(1);
  body.Return(0, body.Call("Or", {body.Call("Greater", {a, b}), body.Call("Equal", {a, b})}));
  return Status::Ok();
}

Status LessOrEqual(FunctionBody& body) {
  const Operand a = body.Input(0), b = body.Input(1);
  body.Return(0, body.Call("Or", {body.Call("Less", {a, b}), body.Call("Equal", {a, b})}));
  return Status::Ok();
}

Status CastLike(FunctionBody& body) {
  const DataType to = body.InputType(1);
  if (to == DataType::kUndefined) return Unimplemented("the target type is not known");
  Attributes attributes = body.attributes();
  attributes.Set("to", static_cast<int64_t>(to));
  body.Return(0, body.Call("Cast", {body.Input(0)}, attributes));
  return Status::Ok();
}

// A * sigmoid(alpha * A) * B
Status SwiGlu(FunctionBody& body) {
  const auto alpha = static_cast<double>(body.attributes().Float("alpha", 1));
  const Operand a = body.Input(0);
  const Operand scaled = body.Call("Mul", {a, body.Number(alpha, body.InputType(0))});
  const Operand gate = body.Call("Mul", {a, body.Call("Sigmoid", {scaled})});
  body.Return(0, body.Call("Mul", {gate, body.Input(1)}));
  return Status::Ok();
}

constexpr int kAll = 1 << 30;
constexpr FunctionEntry kFunctions[] = {
    {"", "CastLike", 15, kAll, CastLike},
    {"", "Celu", 12, kAll, Celu},
    {"", "Clip", 11, kAll, Clip},
    {"", "Elu", 6, kAll, Elu},
    {"", "Gelu", 20, kAll, Gelu},
    {"", "GreaterOrEqual", 12, kAll, GreaterOrEqual},
    {"", "HardSigmoid", 6, kAll, HardSigmoid},
    {"", "HardSwish", 14, kAll, HardSwish},
    {"", "LeakyRelu", 6, kAll, LeakyRelu},
    {"", "LessOrEqual", 12, kAll, LessOrEqual},
    {"", "Mish", 18, kAll, Mish},
    {"", "PRelu", 7, kAll, PRelu},
    {"", "Relu", 6, kAll, Relu},
    {"", "Selu", 6, kAll, Selu},
    {"", "Shrink", 9, kAll, Shrink},
    {"", "Softplus", 1, kAll, Softplus},
    {"", "Softsign", 1, kAll, Softsign},
    {"", "SwiGLU", 28, kAll, SwiGlu},
    {"", "Swish", 24, kAll, Swish},
    {"", "ThresholdedRelu", 10, kAll, ThresholdedRelu},
};

}  // namespace

std::span<const FunctionEntry> ActivationFunctions() { return kFunctions; }

}  // namespace onnxd
