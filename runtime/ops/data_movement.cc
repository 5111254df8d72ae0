// Operators that move, select or make elements.
#include <algorithm>
#include <numeric>

#include "runtime/base/checked_math.h"
#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"
#include "runtime/ops/slice.h"
#include "runtime/tensor/axes.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

size_t Index(int axis) { return static_cast<size_t>(axis); }

int Rank(const SymbolicShape& shape) { return static_cast<int>(shape.size()); }

// Sizes that a tensor or attribute asks for; negative ones are refused.
Result<SymbolicShape> ToSizes(InferenceContext& context, const std::vector<int64_t>& sizes) {
  for (const int64_t size : sizes) {
    if (size < 0) return context.Fail(StrCat("negative size ", size));
  }
  return SymbolicShape(sizes.begin(), sizes.end());
}

Status Constant(InferenceContext& context) {
  const Attributes& attributes = context.attributes();
  const auto list = [&](DataType type, size_t count) {
    context.SetType(0, ValueType::TensorOf(type, SymbolicShape{static_cast<int64_t>(count)}));
    return Status::Ok();
  };
  const auto scalar = [&](DataType type) {
    context.SetType(0, ValueType::TensorOf(type, SymbolicShape{}));
    return Status::Ok();
  };
  for (const char* name : {"value", "sparse_value"}) {
    if (const Initializer* value = attributes.TensorValue(name)) {
      context.SetType(0, ValueType::TensorOf(value->type(), ToSymbolic(value->shape())));
      return Status::Ok();
    }
  }
  if (attributes.Has("value_float")) return scalar(DataType::kFloat);
  if (attributes.Has("value_int")) return scalar(DataType::kInt64);
  if (attributes.Has("value_string")) return scalar(DataType::kString);
  if (attributes.Has("value_floats")) {
    return list(DataType::kFloat, attributes.Floats("value_floats").size());
  }
  if (attributes.Has("value_ints")) {
    return list(DataType::kInt64, attributes.Ints("value_ints").size());
  }
  if (attributes.Has("value_strings")) {
    return list(DataType::kString, attributes.Strings("value_strings").size());
  }
  return context.Fail("it has no value");
}

Status ConstantOfShape(InferenceContext& context) {
  const Initializer* value = context.attributes().TensorValue("value");
  if (value != nullptr && value->shape().ElementCount() != 1) {
    return context.Fail("attribute 'value' must hold one element");
  }
  context.SetElement(0, value ? value->type() : DataType::kFloat);
  if (const auto sizes = context.known_ints(0)) {
    ONNXD_ASSIGN_OR_RETURN(SymbolicShape shape, ToSizes(context, *sizes));
    context.SetShape(0, std::move(shape));
  } else if (context.shape(0) && context.shape(0)->size() == 1 && (*context.shape(0))[0].known() &&
             (*context.shape(0))[0].value <= kMaxRank) {
    context.SetShape(0, SymbolicShape(static_cast<size_t>((*context.shape(0))[0].value)));
  }
  return Status::Ok();
}

Status ShapeOf(InferenceContext& context) {
  context.SetElement(0, DataType::kInt64);
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  const int64_t rank = Rank(*shape);
  const auto clamp = [&](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  };
  const int64_t start = clamp(context.attributes().Int("start", 0));
  const int64_t end = clamp(context.attributes().Int("end", rank));
  context.SetShape(0, {std::max<int64_t>(end - start, 0)});
  return Status::Ok();
}

Status SizeOf(InferenceContext& context) {
  context.SetType(0, ValueType::TensorOf(DataType::kInt64, SymbolicShape{}));
  return Status::Ok();
}

Status Transpose(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  std::vector<int64_t> order = context.attributes().Ints("perm");
  const int rank = Rank(*shape);
  if (order.empty()) {
    for (int axis = rank - 1; axis >= 0; --axis) order.push_back(axis);
  }
  std::vector<bool> seen(shape->size(), false);
  SymbolicShape out;
  for (const int64_t axis : order) {
    if (axis < 0 || axis >= rank || seen[static_cast<size_t>(axis)]) {
      return context.Fail(StrCat("perm [", StrJoin(order, ", "), "] does not permute rank ", rank));
    }
    seen[static_cast<size_t>(axis)] = true;
    out.push_back((*shape)[static_cast<size_t>(axis)]);
  }
  if (Rank(out) != rank) return context.Fail("perm has the wrong length");
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

// Data and updates have one rank.
Status ScatterElements(InferenceContext& context) {
  const SymbolicShape *data = context.shape(0), *updates = context.shape(2);
  if (data != nullptr) {
    context.SetShape(0, *data);
  } else if (updates != nullptr) {
    context.SetShape(0, SymbolicShape(updates->size(), Dimension::Unnamed()));
  }
  return Status::Ok();
}

Status Concat(InferenceContext& context) {
  SymbolicShape out;
  int axis = 0;
  for (size_t i = 0; i < context.input_count(); ++i) {
    const SymbolicShape* shape = context.shape(i);
    if (shape == nullptr) return Status::Ok();
    if (i == 0) {
      out = *shape;
      const int64_t fallback = context.version() < 4 ? 1 : 0;
      ONNXD_ASSIGN_OR_RETURN(axis,
                             NormalizeAxis(context.attributes().Int("axis", fallback), Rank(out)));
      continue;
    }
    if (shape->size() != out.size()) return context.Fail("inputs have different ranks");
    for (int j = 0; j < Rank(out); ++j) {
      Dimension& left = out[Index(j)];
      const Dimension& right = (*shape)[Index(j)];
      if (j == axis) {
        left = left.known() && right.known() ? Dimension(SaturatingAdd(left.value, right.value))
                                             : Dimension();
      } else if (left.known() && right.known() && left.value != right.value) {
        return context.Fail(
            StrCat("inputs disagree on axis ", j, ": ", left.value, " and ", right.value));
      } else if (!left.known() && right.known()) {
        left = right;
      }
    }
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

// Of a state, what is added to it, and as many elements as tokens are dropped from its front.
Status Append(InferenceContext& context) {
  const SymbolicShape *state = context.shape(0), *added = context.shape(1);
  const SymbolicShape* dropped = context.shape(2);
  if (state == nullptr || added == nullptr) return Status::Ok();
  if (state->size() != added->size() || (dropped != nullptr && dropped->size() != 1)) {
    return context.Fail("wants a state, as many dimensions added to it, and one of those dropped");
  }
  SymbolicShape out = *state;
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(context.attributes().Int("axis", 0), Rank(out)));
  for (int i = 0; i < Rank(out); ++i) {
    Dimension& left = out[Index(i)];
    const Dimension& right = (*added)[Index(i)];
    if (i != axis && left.known() && right.known() && left.value != right.value) {
      return context.Fail(
          StrCat("inputs disagree on axis ", i, ": ", left.value, " and ", right.value));
    }
    if (i != axis && !left.known()) left = right;
  }
  const Dimension before = (*state)[Index(axis)], behind = (*added)[Index(axis)];
  const bool known =
      before.known() && behind.known() && dropped != nullptr && (*dropped)[0].known();
  if (known && (*dropped)[0].value > before.value) {
    return context.Fail(
        StrCat("drops ", (*dropped)[0].value, " tokens of a state of ", before.value));
  }
  out[Index(axis)] =
      known ? Dimension(SaturatingAdd(before.value - (*dropped)[0].value, behind.value))
            : Dimension();
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status Slice(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  std::optional<std::vector<int64_t>> starts, ends, axes, steps;
  if (context.version() < 10 && context.node().op_type == "Slice") {
    starts = context.attributes().Ints("starts");
    ends = context.attributes().Ints("ends");
    axes = context.attributes().Ints("axes");
    steps = std::vector<int64_t>();
  } else {
    starts = context.known_ints(1);
    ends = context.known_ints(2);
    axes = context.HasInput(3) ? context.known_ints(3) : std::vector<int64_t>();
    steps = context.HasInput(4) ? context.known_ints(4) : std::vector<int64_t>();
  }
  SymbolicShape out = *shape;
  if (!starts || !ends || !axes || !steps) {
    if (!axes || axes->empty()) {
      context.SetShape(0, SymbolicShape(out.size()));
      return Status::Ok();
    }
    for (const int64_t axis : *axes) {
      ONNXD_ASSIGN_OR_RETURN(const int normal, NormalizeAxis(axis, Rank(out)));
      out[Index(normal)] = Dimension();
    }
    context.SetShape(0, std::move(out));
    return Status::Ok();
  }
  if (axes->empty()) {
    axes->resize(starts->size());
    std::iota(axes->begin(), axes->end(), 0);
  }
  if (steps->empty()) steps->assign(starts->size(), 1);
  if (ends->size() != starts->size() || axes->size() != starts->size() ||
      steps->size() != starts->size()) {
    return context.Fail("starts, ends, axes and steps have different lengths");
  }
  ONNXD_ASSIGN_OR_RETURN(const auto normal, NormalizeAxes(*axes, Rank(out)));
  const int64_t largest = LargestExtent(*shape, context.input(0).element);
  for (size_t i = 0; i < starts->size(); ++i) {
    if ((*steps)[i] == 0) return context.Fail("a step is 0");
    Dimension& dimension = out[Index(normal[i])];
    if (SliceTakesAll(dimension, (*starts)[i], (*ends)[i], (*steps)[i], largest)) continue;
    dimension =
        dimension.known()
            ? Dimension(
                  NormalizeSlice((*starts)[i], (*ends)[i], (*steps)[i], dimension.value).count)
            : Dimension();
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status Split(InferenceContext& context) {
  for (size_t i = 0; i < context.output_count(); ++i) {
    if (context.input(0).is_tensor()) context.SetElement(i, context.input(0).element);
  }
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(context.attributes().Int("axis", 0), Rank(*shape)));
  const Dimension& whole = (*shape)[Index(axis)];
  const auto count = static_cast<int64_t>(context.output_count());
  std::vector<int64_t> sizes = context.attributes().Ints("split");
  bool explicit_sizes = !sizes.empty();
  if (context.version() >= 13 && context.HasInput(1)) {
    const auto known = context.known_ints(1);
    if (!known) {
      SymbolicShape part = *shape;
      part[Index(axis)] = Dimension();
      for (size_t i = 0; i < context.output_count(); ++i) context.SetShape(i, part);
      return Status::Ok();
    }
    sizes = *known;
    explicit_sizes = true;
  }
  if (!explicit_sizes && whole.known()) {
    if (context.version() < 18 && whole.value % count != 0) {
      return context.Fail(
          StrCat("axis of ", whole.value, " cannot be split into ", count, " equal parts"));
    }
    const int64_t chunk = (whole.value + count - 1) / count;
    for (int64_t i = 0; i < count; ++i) {
      sizes.push_back(std::clamp<int64_t>(whole.value - i * chunk, 0, chunk));
    }
  }
  if (sizes.empty()) sizes.assign(static_cast<size_t>(count), -1);
  if (static_cast<int64_t>(sizes.size()) != count) {
    return context.Fail(StrCat("split lists ", sizes.size(), " sizes for ", count, " outputs"));
  }
  int64_t sum = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (explicit_sizes && sizes[i] < 0) return context.Fail("a split size is negative");
    sum = SaturatingAdd(sum, sizes[i]);
    SymbolicShape part = *shape;
    part[Index(axis)] = sizes[i] < 0 ? Dimension() : Dimension(sizes[i]);
    context.SetShape(i, std::move(part));
  }
  if (explicit_sizes && whole.known() && sum != whole.value) {
    return context.Fail(StrCat("split sizes add up to ", sum, ", the axis has ", whole.value));
  }
  return Status::Ok();
}

Status Gather(InferenceContext& context) {
  const SymbolicShape* data = context.shape(0);
  const SymbolicShape* indices = context.shape(1);
  if (data == nullptr || indices == nullptr) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(context.attributes().Int("axis", 0), Rank(*data)));
  SymbolicShape out(data->begin(), data->begin() + axis);
  out.insert(out.end(), indices->begin(), indices->end());
  out.insert(out.end(), data->begin() + axis + 1, data->end());
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status GatherElements(InferenceContext& context) {
  if (const SymbolicShape* indices = context.shape(1)) context.SetShape(0, *indices);
  return Status::Ok();
}

Status GatherND(InferenceContext& context) {
  const SymbolicShape* data = context.shape(0);
  const SymbolicShape* indices = context.shape(1);
  if (data == nullptr || indices == nullptr || indices->empty()) return Status::Ok();
  const Dimension& width = indices->back();
  const int64_t batch = context.attributes().Int("batch_dims", 0);
  if (!width.known()) return Status::Ok();
  if (batch < 0 || batch + width.value > Rank(*data)) {
    return context.Fail("indices address more dimensions than the data have");
  }
  SymbolicShape out(indices->begin(), indices->end() - 1);
  out.insert(out.end(), data->begin() + batch + width.value, data->end());
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status Expand(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  const auto sizes = context.shape_values(1);
  if (shape == nullptr || !sizes) return Status::Ok();
  SymbolicShape target;
  for (const ShapeValue& size : *sizes) {
    if (size.number && *size.number < 0) {
      return context.Fail(StrCat("negative size ", *size.number));
    }
    target.push_back(size.ToDimension());
  }
  ONNXD_ASSIGN_OR_RETURN(SymbolicShape out, Broadcast(*shape, target));
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status Tile(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  const auto repeats = context.known_ints(1);
  if (shape == nullptr) return Status::Ok();
  SymbolicShape out(shape->size());
  if (repeats && context.version() >= 6) {
    if (repeats->size() != shape->size()) return context.Fail("repeats has the wrong length");
    for (size_t i = 0; i < out.size(); ++i) {
      if ((*repeats)[i] < 0) return context.Fail("a repeat is negative");
      if ((*shape)[i].known()) out[i] = SaturatingMultiply((*shape)[i].value, (*repeats)[i]);
    }
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status Pad(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  std::optional<std::vector<int64_t>> pads;
  if (context.version() < 11) {
    pads = context.attributes().Ints(context.version() == 1 ? "paddings" : "pads");
  } else {
    pads = context.known_ints(1);
  }
  std::optional<std::vector<int64_t>> axes = std::vector<int64_t>();
  if (context.HasInput(3)) axes = context.known_ints(3);
  if (!pads || !axes) {
    context.SetShape(0, SymbolicShape(shape->size()));
    return Status::Ok();
  }
  if (axes->empty() && !context.HasInput(3)) {
    axes->resize(shape->size());
    std::iota(axes->begin(), axes->end(), 0);
  }
  if (pads->size() != 2 * axes->size()) {
    return context.Fail(StrCat("pads has ", pads->size(), " entries, expected ", 2 * axes->size()));
  }
  SymbolicShape out = *shape;
  ONNXD_ASSIGN_OR_RETURN(const auto normal, NormalizeAxes(*axes, Rank(out)));
  for (size_t i = 0; i < axes->size(); ++i) {
    Dimension& dimension = out[Index(normal[i])];
    const int64_t added = SaturatingAdd((*pads)[i], (*pads)[i + axes->size()]);
    if (!dimension.known()) {
      if (added != 0) dimension = Dimension::Unnamed();
      continue;
    }
    const int64_t size = SaturatingAdd(dimension.value, added);
    if (size < 0) return context.Fail("pads remove more than there is");
    dimension = size;
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

// "n" of the elements 0, 1, ... n - 1, which symbols, never negative, may stand for; else unknown.
Dimension CountFromZero(const InferenceContext& context) {
  const auto start = context.shape_values(0), end = context.shape_values(1);
  const auto step = context.shape_values(2);
  for (const auto* part : {&start, &end, &step}) {
    if (!*part || (*part)->size() != 1) return {};
  }
  const bool counts = start->front().number == 0 && step->front().number == 1;
  return counts && !end->front().symbol.empty() ? end->front().ToDimension() : Dimension();
}

Status Range(InferenceContext& context) {
  const Tensor* parts[3] = {context.known(0), context.known(1), context.known(2)};
  context.SetShape(0, {CountFromZero(context)});
  for (const Tensor* part : parts) {
    if (part == nullptr) return Status::Ok();
    if (part->ElementCount() != 1) return context.Fail("start, limit and delta must be scalars");
  }
  double numbers[3];
  for (int i = 0; i < 3; ++i) {
    const Tensor& part = *parts[i];
    if (!IsConvertible(part.type())) return Status::Ok();
    ConvertElements(part.type(), part.raw(), DataType::kDouble, &numbers[i], 1);
  }
  if (numbers[2] == 0) return context.Fail("delta is 0");
  const double count = (numbers[1] - numbers[0]) / numbers[2];
  if (!(count < 1e15)) return context.Fail("the range is too long");
  const auto whole = static_cast<int64_t>(count);
  context.SetShape(0, {std::max<int64_t>(0, whole + (static_cast<double>(whole) < count ? 1 : 0))});
  return Status::Ok();
}

Status OneHot(InferenceContext& context) {
  const SymbolicShape* indices = context.shape(0);
  if (indices == nullptr) return Status::Ok();
  int64_t axis = context.attributes().Int("axis", -1);
  const int rank = Rank(*indices) + 1;
  ONNXD_ASSIGN_OR_RETURN(const int position, NormalizeAxis(axis, rank));
  Dimension depth;
  if (const Tensor* known = context.known(1); known && known->ElementCount() == 1) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor number, Converted(*known, DataType::kInt64));
    const int64_t value = number.data<int64_t>()[0];
    if (value < 0) return context.Fail("depth is negative");
    depth = value;
  }
  SymbolicShape out = *indices;
  out.insert(out.begin() + position, depth);
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status DepthToSpace(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  const int64_t block = context.attributes().Int("blocksize", 0);
  if (shape->size() != 4 || block < 1 || block > 65536) {
    return context.Fail("it needs rank 4 and a positive blocksize");
  }
  const bool to_space = context.node().op_type == "DepthToSpace";
  SymbolicShape out = *shape;
  for (int axis = 1; axis < 4; ++axis) {
    Dimension& dimension = out[Index(axis)];
    if (!dimension.known()) continue;
    const int64_t factor = axis == 1 ? block * block : block;
    const bool divide = (axis == 1) == to_space;
    if (divide && dimension.value % factor != 0) {
      return context.Fail(StrCat("axis ", axis, " does not divide by ", factor));
    }
    dimension = divide ? dimension.value / factor : SaturatingMultiply(dimension.value, factor);
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

// onnxd::CopyToDevice and CopyToHost: the same tensor in another memory.
Status SameAsInput(InferenceContext& context) {
  if (context.input(0).known()) context.SetType(0, context.input(0));
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "Concat", Concat},
    {"", "Constant", Constant},
    {"", "ConstantOfShape", ConstantOfShape},
    {"", "DepthToSpace", DepthToSpace},
    {"", "Expand", Expand},
    {"", "Gather", Gather},
    {"", "GatherElements", GatherElements},
    {"", "GatherND", GatherND},
    {"", "OneHot", OneHot},
    {"", "Pad", Pad},
    {"", "Range", Range},
    {"", "ScatterElements", ScatterElements},
    {"onnxd", "Append", Append},
    {"onnxd", "ScatterElementsBroadcast", ScatterElements},
    {"", "ScatterND", SameShapeAsInput},
    {"", "Shape", ShapeOf},
    {"", "Size", SizeOf},
    {"", "DynamicSlice", Slice},
    {"", "Slice", Slice},
    {"", "SpaceToDepth", DepthToSpace},
    {"", "Split", Split},
    {"", "Tile", Tile},
    {"", "Transpose", Transpose},
    {"", "Trilu", SameShapeAsInput},
    {"onnxd", "CopyToDevice", SameAsInput},
    {"onnxd", "CopyToHost", SameAsInput},
};

}  // namespace

std::span<const InferenceRule> DataMovementRules() { return kRules; }

}  // namespace onnxd
