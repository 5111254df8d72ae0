#include "runtime/providers/gpu/pointwise_expressions.h"

#include <array>
#include <cctype>
#include <cstdio>
#include <initializer_list>
#include <map>
#include <string_view>
#include <vector>

#include "runtime/base/str_cat.h"
#include "runtime/device/dialect.h"

namespace onnxd {
namespace {

constexpr std::string_view kFunctions = R"(
#define TRUNCATION(T, W, LOW, HIGH) \
  FUNCTION W truncated_##T##_##W(T x) { \
    return x != x ? (W)0 : x <= (T)(LOW) ? (W)(LOW) : x >= (T)(HIGH) ? (W)(HIGH) : (W)x; \
  }
#define FLOAT_FUNCTIONS(T) \
  FUNCTION T sigmoid_##T(T x) { return (T)1 / ((T)1 + exp(-x)); } \
  FUNCTION T softplus_##T(T x) { return x > (T)0 ? x + log1p(exp(-x)) : log1p(exp(x)); } \
  FUNCTION T gelu_##T(T x) { return (T)0.5f * x * ((T)1 + erf(x * (T)0.70710678118654752)); } \
  FUNCTION T gelu_tanh_##T(T x) { \
    return (T)0.5f * x * ((T)1 + tanh((T)0.7978845608028654 * (x + (T)0.044715 * x * x * x))); \
  } \
  FUNCTION T elu_##T(T x, T alpha) { return x < (T)0 ? alpha * expm1(x) : x; } \
  FUNCTION T celu_##T(T x, T alpha) { \
    return fmax(x, (T)0) + fmin((T)0, alpha * expm1(x / alpha)); \
  } \
  FUNCTION T power_##T(T x, T y) { return y == (T)2 ? x * x : pow(x, y); } \
  TRUNCATION(T, i8, -128, 127) \
  TRUNCATION(T, i16, -32768, 32767) \
  TRUNCATION(T, i32, -2147483647 - 1, 2147483647) \
  TRUNCATION(T, i64, -9223372036854775807L - 1L, 9223372036854775807L) \
  TRUNCATION(T, u8, 0, 255) \
  TRUNCATION(T, u16, 0, 65535) \
  TRUNCATION(T, u32, 0u, 4294967295u) \
  TRUNCATION(T, u64, 0UL, 18446744073709551615UL)
FLOAT_FUNCTIONS(f32)
#ifdef HAS_F64
FLOAT_FUNCTIONS(f64)
#endif
// gelu_f32 for numbers of 16 bits: x, or 0 where it is negative, less |x| times the normal
// distribution beyond |x|, whose logarithm is a polynomial within 4.4e-5 up to 8, by least squares
// reweighted until the largest error was smallest. Beyond 8 that is less than 16 bits tell from 0.
FUNCTION f32 gelu_of_16(f32 x) {
  const f32 m = fmin(fabs(x), 8.0f);
  const f32 high = 0.00794455502f + m * (-0.00080724404f + m * (4.820291e-05f + m * -1.26244458e-06f));
  const f32 log2 = -1.00004315f + m * (-1.15060985f + m * (-0.459956944f + m * (-0.0526353084f + m * high)));
  return MAX_OR_NAN(x, 0.0f) - m * QUICK_EXP2(log2);
}
#define SIGNED_FUNCTIONS(T, U) \
  FUNCTION T quotient_##T(T x, T y) { return y == 0 ? 0 : y == -1 ? (T)(0 - (U)x) : (T)(x / y); } \
  FUNCTION T remainder_##T(T x, T y) { return y == 0 || y == -1 ? 0 : (T)(x % y); } \
  FUNCTION T modulo_##T(T x, T y) { \
    const T rest = remainder_##T(x, y); \
    return rest != 0 && ((rest < 0) != (y < 0)) ? (T)(rest + y) : rest; \
  }
#define UNSIGNED_FUNCTIONS(T) \
  FUNCTION T quotient_##T(T x, T y) { return y == 0 ? 0 : (T)(x / y); } \
  FUNCTION T remainder_##T(T x, T y) { return y == 0 ? 0 : (T)(x % y); } \
  FUNCTION T modulo_##T(T x, T y) { return remainder_##T(x, y); }
SIGNED_FUNCTIONS(i8, u8)
SIGNED_FUNCTIONS(i16, u16)
SIGNED_FUNCTIONS(i32, u32)
SIGNED_FUNCTIONS(i64, u64)
UNSIGNED_FUNCTIONS(u8)
UNSIGNED_FUNCTIONS(u16)
UNSIGNED_FUNCTIONS(u32)
UNSIGNED_FUNCTIONS(u64)
#ifdef HAS_F64
FUNCTION i64 whole_power(f64 x, f64 y, i64 low, i64 high) {
  const f64 power = pow(x, y);
  if (!(power > (f64)low)) return power != power ? 0 : low;
  return power >= (f64)high ? high : (i64)power;
}
#endif
)";

enum class Types { kFloat, kWhole, kNumber, kBool, kAny };

bool IsFloat(DataType type) { return IsFloatingPoint(type); }

bool Covers(Types types, DataType type) {
  switch (types) {
    case Types::kFloat:
      return IsFloat(type);
    case Types::kWhole:
      return IsInteger(type);
    case Types::kNumber:
      return IsFloat(type) || IsInteger(type);
    case Types::kBool:
      return type == DataType::kBool;
    case Types::kAny:
      return true;
  }
  return false;
}

// In a text $0, $1, ... are the operands, $T the type that operand 0 computes in, and $name the
// value of an attribute, by a default or as a number.
struct Row {
  Types types;  // of operand 0
  std::string_view text;
  std::vector<std::pair<std::string_view, float>> attributes = {};
};

using Table = std::multimap<std::string_view, Row>;

const Table& StandardTable() {
  static const Table table = {
      {"Abs", {Types::kFloat, "fabs($0)"}},
      {"Abs", {Types::kWhole, "($0 < 0 ? ($T)(0 - $0) : $0)"}},
      {"Acos", {Types::kFloat, "acos($0)"}},
      {"Acosh", {Types::kFloat, "acosh($0)"}},
      {"Add", {Types::kNumber, "($T)($0 + $1)"}},
      {"And", {Types::kBool, "($0 && $1)"}},
      {"Asin", {Types::kFloat, "asin($0)"}},
      {"Asinh", {Types::kFloat, "asinh($0)"}},
      {"Atan", {Types::kFloat, "atan($0)"}},
      {"Atanh", {Types::kFloat, "atanh($0)"}},
      {"BitwiseAnd", {Types::kWhole, "($T)($0 & $1)"}},
      {"BitwiseNot", {Types::kWhole, "($T)(~$0)"}},
      {"BitwiseOr", {Types::kWhole, "($T)($0 | $1)"}},
      {"BitwiseXor", {Types::kWhole, "($T)($0 ^ $1)"}},
      {"Ceil", {Types::kFloat, "ceil($0)"}},
      {"Celu", {Types::kFloat, "celu_$T($0, ($T)$alpha)", {{"alpha", 1.0f}}}},
      {"Cos", {Types::kFloat, "cos($0)"}},
      {"Cosh", {Types::kFloat, "cosh($0)"}},
      {"Div", {Types::kFloat, "($0 / $1)"}},
      {"Div", {Types::kWhole, "quotient_$T($0, $1)"}},
      {"Elu", {Types::kFloat, "elu_$T($0, ($T)$alpha)", {{"alpha", 1.0f}}}},
      {"Equal", {Types::kAny, "($0 == $1)"}},
      {"Erf", {Types::kFloat, "erf($0)"}},
      {"Exp", {Types::kFloat, "exp($0)"}},
      {"Floor", {Types::kFloat, "floor($0)"}},
      {"Greater", {Types::kNumber, "($0 > $1)"}},
      {"GreaterOrEqual", {Types::kNumber, "($0 >= $1)"}},
      {"HardSigmoid",
       {Types::kFloat,
        "fmax(($T)0, fmin(($T)1, ($T)$alpha * $0 + ($T)$beta))",
        {{"alpha", 0.2f}, {"beta", 0.5f}}}},
      {"HardSwish", {Types::kFloat, "($0 * fmin(fmax($0 / ($T)6 + ($T)0.5f, ($T)0), ($T)1))"}},
      {"IsNaN", {Types::kFloat, "($0 != $0)"}},
      {"LeakyRelu", {Types::kFloat, "($0 < 0 ? ($T)$alpha * $0 : $0)", {{"alpha", 0.01f}}}},
      {"Less", {Types::kNumber, "($0 < $1)"}},
      {"LessOrEqual", {Types::kNumber, "($0 <= $1)"}},
      {"Log", {Types::kFloat, "log($0)"}},
      {"Mish", {Types::kFloat, "($0 * tanh(softplus_$T($0)))"}},
      {"Mul", {Types::kNumber, "($T)($0 * $1)"}},
      {"Neg", {Types::kFloat, "(-$0)"}},
      {"Neg", {Types::kWhole, "($T)(0 - $0)"}},
      {"Not", {Types::kBool, "($0 == 0)"}},
      {"Or", {Types::kBool, "($0 || $1)"}},
      {"PRelu", {Types::kNumber, "($0 < 0 ? ($T)($0 * $1) : $0)"}},
      {"Reciprocal", {Types::kFloat, "(($T)1 / $0)"}},
      {"Relu", {Types::kNumber, "($0 < 0 ? ($T)0 : $0)"}},
      {"Round", {Types::kFloat, "rint($0)"}},
      {"Selu",
       {Types::kFloat,
        "(($T)$gamma * elu_$T($0, ($T)$alpha))",
        {{"alpha", 1.67326319217681884765625f}, {"gamma", 1.05070102214813232421875f}}}},
      {"Shrink",
       {Types::kFloat,
        "($0 < -($T)$lambd ? $0 + ($T)$bias : $0 > ($T)$lambd ? $0 - ($T)$bias : ($T)0)",
        {{"bias", 0.0f}, {"lambd", 0.5f}}}},
      {"Sigmoid", {Types::kFloat, "sigmoid_$T($0)"}},
      {"Sign", {Types::kNumber, "($0 != $0 ? $0 : ($T)(($0 > 0) - ($0 < 0)))"}},
      {"Sin", {Types::kFloat, "sin($0)"}},
      {"Sinh", {Types::kFloat, "sinh($0)"}},
      {"Softplus", {Types::kFloat, "softplus_$T($0)"}},
      {"Softsign", {Types::kFloat, "($0 / (($T)1 + fabs($0)))"}},
      {"Sqrt", {Types::kFloat, "sqrt($0)"}},
      {"Sub", {Types::kNumber, "($T)($0 - $1)"}},
      {"Swish", {Types::kFloat, "($0 * sigmoid_$T(($T)$alpha * $0))", {{"alpha", 1.0f}}}},
      {"Tan", {Types::kFloat, "tan($0)"}},
      {"Tanh", {Types::kFloat, "tanh($0)"}},
      {"ThresholdedRelu", {Types::kFloat, "($0 > ($T)$alpha ? $0 : ($T)0)", {{"alpha", 1.0f}}}},
      {"Xor", {Types::kBool, "(($0 != 0) != ($1 != 0))"}},
  };
  return table;
}

const Table& ContribTable() {
  static const Table table = {
      {"BiasGelu", {Types::kFloat, "gelu_$T($0 + $1)"}},
      {"Gelu", {Types::kFloat, "gelu_$T($0)"}},
      {"QuickGelu", {Types::kFloat, "($0 * sigmoid_$T(($T)$alpha * $0))", {{"alpha", 1.702f}}}},
  };
  return table;
}

// A number as the language writes it; hexadecimal would need C99, which one of the two lacks.
std::string Literal(float value) {
  if (value != value) return "NAN_F32";
  if (value - value != 0) return value < 0 ? "(-INFINITY_F32)" : "INFINITY_F32";
  char text[48];
  std::snprintf(text, sizeof(text), "%.9g", static_cast<double>(value));
  std::string literal = text;
  if (literal.find_first_of(".e") == std::string::npos) literal += ".0";
  return StrCat("(", literal, "f)");
}

class Expression {
 public:
  Expression(const Node& node, std::span<const DataType> types, DataType result,
             std::span<const std::string> operands)
      : node_(node), types_(types), result_(result), operands_(operands) {}

  std::optional<std::string> Make() const {
    for (size_t i = 0; i < types_.size(); ++i) {
      if (!operands_[i].empty() && !IsDeviceType(types_[i])) return std::nullopt;
    }
    if (!IsDeviceType(result_) || types_.empty()) return std::nullopt;
    const Table& table = node_.domain.empty() ? StandardTable() : ContribTable();
    if (!node_.domain.empty() && node_.domain != "com.microsoft") return std::nullopt;
    const auto [first, last] = table.equal_range(node_.op_type);
    for (auto entry = first; entry != last; ++entry) {
      if (Covers(entry->second.types, types_[0])) return Fill(entry->second);
    }
    return Special();
  }

 private:
  std::string_view T() const { return ComputeName(types_[0]); }

  std::string Fill(const Row& row) const {
    std::string out;
    for (size_t at = 0; at < row.text.size();) {
      if (row.text[at] != '$') {
        out += row.text[at++];
        continue;
      }
      size_t end = at + 1;
      while (end < row.text.size() && std::isalnum(static_cast<unsigned char>(row.text[end])))
        ++end;
      const std::string_view name = row.text.substr(at + 1, end - at - 1);
      at = end;
      if (name == "T") {
        out += T();
      } else if (std::isdigit(static_cast<unsigned char>(name[0]))) {
        out += operands_[static_cast<size_t>(name[0] - '0')];
      } else {
        for (const auto& [attribute, value] : row.attributes) {
          if (attribute == name) out += Literal(node_.attributes.Float(std::string(name), value));
        }
      }
    }
    return out;
  }

  // What one text does not say.
  std::optional<std::string> Special() const {
    const std::string& op = node_.op_type;
    if (!node_.domain.empty()) {
      if (op != "FastGelu" || !IsFloat(types_[0])) return std::nullopt;
      const std::string sum = operands_.size() > 1 && !operands_[1].empty()
                                  ? StrCat("(", operands_[0], " + ", operands_[1], ")")
                                  : operands_[0];
      return StrCat("gelu_tanh_", T(), "(", sum, ")");
    }
    if (op == "Max" || op == "Min" || op == "Sum" || op == "Mean") return Variadic();
    if (op == "Cast" || op == "CastLike") return Convert(operands_[0], types_[0], result_);
    if (op == "Clip") return Clip();
    if (op == "Where") {
      return StrCat("(", operands_[0], " ? ", operands_[1], " : ", operands_[2], ")");
    }
    if (op == "Pow") return Power();
    if (op == "Mod") return Modulo();
    if (op == "BitShift") return Shift();
    if (op == "IsInf") return IsInfinite();
    if (op == "QuantizeLinear") return Quantize();
    if (op == "DequantizeLinear") return Dequantize();
    if (op == "Gelu" && IsFloat(types_[0])) {
      const bool tanh = node_.attributes.String("approximate", "none") == "tanh";
      return StrCat(tanh ? "gelu_tanh_" : "gelu_", T(), "(", operands_[0], ")");
    }
    return std::nullopt;
  }

  std::optional<std::string> Variadic() const {
    if (!Covers(Types::kNumber, types_[0])) return std::nullopt;
    const std::string& op = node_.op_type;
    std::string folded = operands_[0];
    for (size_t i = 1; i < operands_.size(); ++i) {
      if (op == "Max" || op == "Min") {
        folded =
            StrCat(op == "Max" ? "larger_" : "smaller_", T(), "(", folded, ", ", operands_[i], ")");
      } else {
        folded = StrCat("(", T(), ")(", folded, " + ", operands_[i], ")");
      }
    }
    if (op != "Mean") return folded;
    return StrCat("(", T(), ")(", folded, " / (", T(), ")", operands_.size(), ")");
  }

  std::optional<std::string> Clip() const {
    if (!Covers(Types::kNumber, types_[0])) return std::nullopt;
    const auto bound = [&](size_t i, std::string_view attribute) -> std::string {
      if (node_.since_version >= 11) return i < operands_.size() ? operands_[i] : std::string();
      const auto& entries = node_.attributes.entries();
      for (const auto& [name, value] : entries) {
        if (name == attribute) {
          return StrCat("(", T(), ")", Literal(node_.attributes.Float(std::string(attribute), 0)));
        }
      }
      return {};
    };
    std::string clipped = operands_[0];
    if (const std::string low = bound(1, "min"); !low.empty()) {
      clipped = StrCat("raised_", T(), "(", clipped, ", ", low, ")");
    }
    if (const std::string high = bound(2, "max"); !high.empty()) {
      clipped = StrCat("lowered_", T(), "(", clipped, ", ", high, ")");
    }
    return clipped;
  }

  std::optional<std::string> Power() const {
    if (!Covers(Types::kNumber, types_[0]) || !Covers(Types::kNumber, types_[1])) {
      return std::nullopt;
    }
    if (IsFloat(types_[0])) {
      return StrCat("power_", T(), "(", operands_[0], ", (", T(), ")", operands_[1], ")");
    }
    const auto limits = [&]() -> std::string {
      switch (types_[0]) {
        case DataType::kInt32:
          return "-2147483648L, 2147483647L";
        case DataType::kInt64:
          return "-9223372036854775807L - 1L, 9223372036854775807L";
        default:
          return {};
      }
    }();
    if (limits.empty()) return std::nullopt;
    return StrCat("(", T(), ")whole_power((f64)", operands_[0], ", (f64)", operands_[1], ", ",
                  limits, ")");
  }

  std::optional<std::string> Modulo() const {
    if (!Covers(Types::kNumber, types_[0])) return std::nullopt;
    if (IsFloat(types_[0])) return StrCat("fmod(", operands_[0], ", ", operands_[1], ")");
    const bool c_style = node_.attributes.Int("fmod", 0) != 0;
    return StrCat(c_style ? "remainder_" : "modulo_", T(), "(", operands_[0], ", ", operands_[1],
                  ")");
  }

  std::optional<std::string> Shift() const {
    if (!Covers(Types::kWhole, types_[0])) return std::nullopt;
    const bool left = node_.attributes.String("direction", "") == "LEFT";
    return StrCat("(", operands_[1], " >= ", DataTypeBits(types_[0]), " ? (", T(), ")0 : (", T(),
                  ")(", operands_[0], left ? " << " : " >> ", operands_[1], "))");
  }

  std::optional<std::string> IsInfinite() const {
    if (!IsFloat(types_[0])) return std::nullopt;
    const bool positive = node_.attributes.Int("detect_positive", 1) != 0;
    const bool negative = node_.attributes.Int("detect_negative", 1) != 0;
    const auto is = [&](std::string_view what) {
      return StrCat("(", operands_[0], " == (", T(), ")", what, ")");
    };
    const std::string plus = is("INFINITY_F32"), minus = is("(-INFINITY_F32)");
    if (positive && negative) return StrCat("(", plus, " || ", minus, ")");
    if (positive) return plus;
    return negative ? minus : "(0 != 0)";
  }

  // Rounded first, then moved by the zero point: half way goes to the even neighbour of the
  // quotient.
  std::optional<std::string> Quantize() const {
    if (!IsInteger(result_) || DataTypeBits(result_) > 16 || !IsFloat(types_[0]) ||
        types_[0] == DataType::kDouble || IsBlocked()) {
      return std::nullopt;
    }
    const bool halves = types_[0] == DataType::kFloat16 && types_[1] == DataType::kFloat16;
    const std::string quotient = StrCat("((f32)", operands_[0], " / (f32)", operands_[1], ")");
    const std::string rounded =
        StrCat("rint(", halves ? StrCat("f16_to_f32(f32_to_f16(", quotient, "))") : quotient, ")");
    return StrCat("truncated_f32_", ComputeName(result_), "(", rounded,
                  HasZero() ? StrCat(" + (f32)", operands_[2]) : "", ")");
  }

  std::optional<std::string> Dequantize() const {
    if (!IsInteger(types_[0]) || !IsFloatingPoint(result_) || IsBlocked()) return std::nullopt;
    if (!HasZero()) return StrCat("((f32)", operands_[0], " * (f32)", operands_[1], ")");
    return StrCat("((f32)((i64)", operands_[0], " - (i64)", operands_[2], ") * (f32)", operands_[1],
                  ")");
  }

  bool HasZero() const { return operands_.size() > 2 && !operands_[2].empty(); }
  bool IsBlocked() const { return node_.attributes.Int("block_size", 0) != 0; }

  static std::string Convert(const std::string& x, DataType from, DataType to) {
    if (to == DataType::kBool) return StrCat("(", x, " != 0)");
    if (IsInteger(to) && IsFloat(from)) {
      return StrCat("truncated_", ComputeName(from), "_", ComputeName(to), "(", x, ")");
    }
    return StrCat("(", ComputeName(to), ")", x);
  }

  const Node& node_;
  const std::span<const DataType> types_;
  const DataType result_;
  const std::span<const std::string> operands_;
};

std::string MakeFunctions() {
  std::string text(kFunctions);
  for (const std::string_view type :
       {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64"}) {
    if (type == "f64") text += "#ifdef HAS_F64\n";
    // Of two numbers one of which is none, the result is none; a bound that is none bounds nothing.
    text += StrCat("FUNCTION ", type, " larger_", type, "(", type, " a, ", type,
                   " b) { return a != a || a > b ? a : b; }\n", "FUNCTION ", type, " smaller_",
                   type, "(", type, " a, ", type, " b) { return a != a || a < b ? a : b; }\n",
                   "FUNCTION ", type, " raised_", type, "(", type, " a, ", type,
                   " b) { return a < b ? b : a; }\n", "FUNCTION ", type, " lowered_", type, "(",
                   type, " a, ", type, " b) { return a > b ? b : a; }\n");
    if (type == "f64") text += "#endif\n";
  }
  return text;
}

}  // namespace

std::optional<std::string> PointwiseExpression(const Node& node, std::span<const DataType> types,
                                               DataType result,
                                               std::span<const std::string> operands) {
  auto text = Expression(node, types, result, operands).Make();
  constexpr std::string_view kGelu = "gelu_f32(";
  if (text && text->starts_with(kGelu) && DataTypeBits(types[0]) == 16) {
    text->replace(0, kGelu.size(), "gelu_of_16(");
  }
  return text;
}

const std::string& PointwiseFunctions() {
  static const std::string text = MakeFunctions();
  return text;
}

}  // namespace onnxd
