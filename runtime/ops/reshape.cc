// Operators that give the same elements in the same order another shape.
#include <algorithm>

#include "runtime/base/checked_math.h"
#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"
#include "runtime/tensor/axes.h"

namespace onnxd {
namespace {

size_t Index(int axis) { return static_cast<size_t>(axis); }

int Rank(const SymbolicShape& shape) { return static_cast<int>(shape.size()); }

// The product of known dimensions, saturating; nullopt when one is unknown.
std::optional<int64_t> Product(const SymbolicShape& shape) {
  int64_t product = 1;
  for (const Dimension& dimension : shape) {
    if (!dimension.known()) return std::nullopt;
    product = SaturatingMultiply(product, dimension.value);
  }
  return product;
}

// What one entry of Reshape's target says; nullopt for -1.
Result<std::optional<Dimension>> TargetDimension(InferenceContext& context, size_t i,
                                                 const ShapeValue& wanted) {
  if (!wanted.number) return std::optional(wanted.ToDimension());
  if (*wanted.number == -1) return std::optional<Dimension>();
  if (*wanted.number < 0) return context.Fail(StrCat("the new shape holds ", *wanted.number));
  if (*wanted.number > 0 || context.attributes().Int("allowzero", 0) != 0) {
    return std::optional(Dimension(*wanted.number));
  }
  const SymbolicShape* input = context.shape(0);
  if (input == nullptr) return std::optional(Dimension());
  if (i >= input->size()) {
    return context.Fail("the new shape copies a dimension that the input does not have");
  }
  return std::optional((*input)[i]);
}

std::string ToText(const std::vector<ShapeValue>& values) {
  std::string text;
  for (const ShapeValue& value : values) {
    text += StrCat(text.empty() ? "" : ", ", value.number           ? StrCat(*value.number)
                                             : value.symbol.empty() ? "?"
                                                                    : value.symbol);
  }
  return text;
}

// Multiplies `number` and adds to `names`. False for an extent of which nothing is known.
bool TakeFactors(const Dimension& dimension, int64_t& number, std::vector<std::string>& names) {
  if (dimension.known()) {
    number = SaturatingMultiply(number, dimension.value);
    return true;
  }
  if (dimension.symbol.empty()) return false;
  const SymbolFactors factors = FactorsOf(dimension.symbol);
  number = SaturatingMultiply(number, factors.number);
  names.insert(names.end(), factors.names.begin(), factors.names.end());
  return true;
}

struct NewShape {
  std::vector<ShapeValue> wanted;
  SymbolicShape dimensions;  // of `wanted`; unknown where it says -1
  int inferred = -1;         // the axis of -1
};

// The dimension for which -1 stands when numbers and symbols of both sides cancel; unknown
// otherwise.
Dimension Remainder(const SymbolicShape& input, const NewShape& shape) {
  int64_t above = 1, below = 1;
  std::vector<std::string> symbols, taken;
  for (const Dimension& dimension : input) {
    if (!TakeFactors(dimension, above, symbols)) return {};
  }
  for (int i = 0; i < Rank(shape.dimensions); ++i) {
    if (i == shape.inferred) continue;
    if (!TakeFactors(shape.dimensions[Index(i)], below, taken)) return {};
  }
  for (const std::string& symbol : taken) {
    const auto found = std::find(symbols.begin(), symbols.end(), symbol);
    if (found == symbols.end()) return {};
    symbols.erase(found);
  }
  if (below == 0 || above == INT64_MAX || above % below != 0) return {};
  if (symbols.empty()) return Dimension(above / below);
  if (symbols.size() > 1 || above != below) return {};
  return Dimension::Symbol(symbols[0]);
}

// What -1 stands for where there are no elements: the axes that are copied stand for themselves, as
// in a batch of nothing, and the others are divided. nullopt where these have none either.
std::optional<int64_t> RemainderOfNothing(const InferenceContext& context,
                                          const SymbolicShape& input, const NewShape& shape) {
  const SymbolicShape& out = shape.dimensions;
  const std::vector<ShapeValue>& wanted = shape.wanted;
  if (context.attributes().Int("allowzero", 0) != 0) return std::nullopt;
  int64_t above = 1, below = 1;
  for (size_t i = 0; i < std::max(input.size(), out.size()); ++i) {
    const bool copied =
        i < wanted.size() && i < input.size() && wanted[i].number == 0 && wanted[i].symbol.empty();
    if (copied) continue;
    if (i < input.size()) above = SaturatingMultiply(above, input[i].value);
    if (i < out.size() && i != Index(shape.inferred))
      below = SaturatingMultiply(below, out[i].value);
  }
  if (below == 0 || above % below != 0) return std::nullopt;
  return above / below;
}

// The new shape that the node asks for; nullopt where only a run knows it.
std::optional<std::vector<ShapeValue>> WantedShape(InferenceContext& context) {
  if (context.version() >= 5) return context.shape_values(1);
  std::vector<ShapeValue> wanted;
  for (const int64_t size : context.attributes().Ints("shape")) wanted.push_back({size, ""});
  return wanted;
}

// As many unknown dimensions as the second input has elements.
void SetRankAlone(InferenceContext& context) {
  const SymbolicShape* sizes = context.shape(1);
  if (sizes && sizes->size() == 1 && (*sizes)[0].known() && (*sizes)[0].value <= kMaxRank) {
    context.SetShape(0, SymbolicShape(static_cast<size_t>((*sizes)[0].value)));
  }
}

// What -1 stands for, or that the counts agree, where all other dimensions are known.
Status MatchElements(InferenceContext& context, const SymbolicShape& input, int64_t total,
                     NewShape& shape) {
  int64_t product = 1;
  for (int i = 0; i < Rank(shape.dimensions); ++i) {
    if (i == shape.inferred) continue;
    product = SaturatingMultiply(product, shape.dimensions[Index(i)].value);
  }
  if (shape.inferred < 0) {
    if (product == total) return Status::Ok();
    return context.Fail(StrCat("input shape ", ToString(input), " has ", total,
                               " elements, the new shape [", ToText(shape.wanted), "] has ",
                               product));
  }
  const auto rest = product != 0 && total % product == 0 ? std::optional(total / product)
                    : product == 0 && total == 0         ? RemainderOfNothing(context, input, shape)
                                                         : std::nullopt;
  if (!rest) {
    return context.Fail(StrCat("input shape ", ToString(input),
                               " does not divide into the new shape [", ToText(shape.wanted), "]"));
  }
  shape.dimensions[Index(shape.inferred)] = *rest;
  return Status::Ok();
}

Status Reshape(InferenceContext& context) {
  auto wanted = WantedShape(context);
  if (!wanted) {
    SetRankAlone(context);
    return Status::Ok();
  }
  NewShape shape{std::move(*wanted), {}, -1};
  bool complete = true;
  for (size_t i = 0; i < shape.wanted.size(); ++i) {
    ONNXD_ASSIGN_OR_RETURN(const auto dimension, TargetDimension(context, i, shape.wanted[i]));
    shape.dimensions.push_back(dimension.value_or(Dimension()));
    if (dimension) {
      complete = complete && dimension->known();
      continue;
    }
    if (shape.inferred >= 0) return context.Fail("the new shape has more than one -1");
    shape.inferred = static_cast<int>(i);
  }
  const SymbolicShape* input = context.shape(0);
  const auto total = input ? Product(*input) : std::nullopt;
  if (complete && total) {
    ONNXD_RETURN_IF_ERROR(MatchElements(context, *input, *total, shape));
  } else if (shape.inferred >= 0 && input != nullptr) {
    shape.dimensions[Index(shape.inferred)] = Remainder(*input, shape);
  }
  context.SetShape(0, std::move(shape.dimensions));
  return Status::Ok();
}

Status Flatten(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  int64_t axis = context.attributes().Int("axis", 1);
  const int rank = Rank(*shape);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank) return context.Fail("axis is out of range");
  const auto fold = [&](int begin, int end) -> Dimension {
    const SymbolicShape part(shape->begin() + begin, shape->begin() + end);
    if (const auto product = Product(part)) return *product;
    return part.size() == 1 ? part[0] : Dimension();
  };
  const int cut = static_cast<int>(axis);
  context.SetShape(0, {fold(0, cut), fold(cut, rank)});
  return Status::Ok();
}

// The axes of Squeeze or Unsqueeze: attribute before opset 13, input 1 from then on.
std::optional<std::vector<int64_t>> AxesOf(InferenceContext& context) {
  if (context.version() < 13) return context.attributes().Ints("axes");
  return context.HasInput(1) ? context.known_ints(1) : std::vector<int64_t>();
}

Status Squeeze(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  const auto axes = AxesOf(context);
  if (shape == nullptr || !axes) return Status::Ok();
  std::vector<bool> drop(shape->size(), false);
  for (const int64_t axis : *axes) {
    ONNXD_ASSIGN_OR_RETURN(const int normal, NormalizeAxis(axis, Rank(*shape)));
    const Dimension& dimension = (*shape)[Index(normal)];
    if (dimension.known() && dimension.value != 1) {
      return context.Fail(StrCat("axis ", axis, " has ", dimension.value, " elements, not 1"));
    }
    drop[Index(normal)] = true;
  }
  SymbolicShape out;
  for (size_t i = 0; i < shape->size(); ++i) {
    if (axes->empty() && !(*shape)[i].known()) return Status::Ok();
    if (axes->empty() ? (*shape)[i].value != 1 : !drop[i]) out.push_back((*shape)[i]);
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status Unsqueeze(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  const auto axes = AxesOf(context);
  if (shape == nullptr || !axes) return Status::Ok();
  const int rank = Rank(*shape) + static_cast<int>(axes->size());
  if (rank > kMaxRank) return context.Fail("the result has too many dimensions");
  std::vector<bool> added(Index(rank), false);
  for (const int64_t axis : *axes) {
    ONNXD_ASSIGN_OR_RETURN(const int normal, NormalizeAxis(axis, rank));
    if (added[Index(normal)]) return context.Fail("axes repeat");
    added[Index(normal)] = true;
  }
  SymbolicShape out;
  size_t next = 0;
  for (int axis = 0; axis < rank; ++axis) {
    out.push_back(added[Index(axis)] ? Dimension(1) : (*shape)[next++]);
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "Flatten", Flatten},
    {"", "Reshape", Reshape},
    {"", "Squeeze", Squeeze},
    {"", "Unsqueeze", Unsqueeze},
};

}  // namespace

std::span<const InferenceRule> ReshapeRules() { return kRules; }

}  // namespace onnxd
