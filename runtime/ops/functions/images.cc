// CenterCropPad and AffineGrid as their parts. Source: the texts of ONNX CenterCropPad-18 and
// AffineGrid-20.
#include "runtime/ops/functions.h"
#include "runtime/ops/functions/dimensions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

// X cut, or padded with zeros, around its middle: to `shape` along `axes`.
Status CenterCropPad(FunctionBody& body) {
  const int rank = body.InputRank(0);
  if (rank < 0) return Unimplemented("the rank of the input is not known");
  std::vector<int64_t> chosen = body.attributes().Ints("axes");
  for (int64_t axis = 0; chosen.empty() && axis < rank; ++axis) {
    for (int64_t i = 0; i < rank; ++i) chosen.push_back(i);
  }
  const Operand axes = body.Integers(chosen), none = body.Integers({0}), two = body.Integers({2});
  const Operand wanted = body.Cast(body.Input(1), DataType::kInt64);
  const Operand given = body.Call("Gather", {body.Call("Shape", {body.Input(0)}), axes});
  const Operand missing = body.Call("Max", {body.Call("Sub", {wanted, given}), none});
  const Operand before = body.Call("Div", {missing, two});
  const Operand pads =
      body.Call("Concat", {before, body.Call("Sub", {missing, before})}, AxisOf(0));
  const Operand padded = body.Call("Pad", {body.Input(0), pads, {}, axes});
  const Operand extra = body.Call("Max", {body.Call("Sub", {given, wanted}), none});
  const Operand begin = body.Call("Div", {extra, two});
  const Operand end = body.Call("Add", {begin, wanted});
  body.Return(0, body.Call("Slice", {padded, begin, end, axes}));
  return Status::Ok();
}

// Where the pixels of an axis lie between -1 and 1; `extent`: a scalar of int64.
Operand PixelPlaces(FunctionBody& body, Operand extent, DataType type) {
  const auto number = [&](double value) { return body.Number(value, type); };
  const auto whole = [&](int64_t value) {
    return body.Number(static_cast<double>(value), DataType::kInt64);
  };
  const Operand i = body.Cast(body.Call("Range", {whole(0), extent, whole(1)}), type);
  const Operand twice = body.Call("Mul", {i, number(2)});
  const Operand size = body.Cast(extent, type);
  if (body.attributes().Int("align_corners", 0) == 0) {
    const Operand centers = body.Call("Add", {twice, number(1)});
    return body.Call("Sub", {body.Call("Div", {centers, size}), number(1)});
  }
  // A single pixel is in the middle.
  const Operand steps = body.Call("Max", {body.Call("Sub", {size, number(1)}), number(1)});
  const Operand corners = body.Call("Sub", {body.Call("Div", {twice, steps}), number(1)});
  const Operand several = body.Call("Greater", {extent, whole(1)});
  return body.Call("Where", {several, corners, number(0)});
}

// theta [batch, 2 or 3, 3 or 4], size [batch, channels, spatial...] to [batch, spatial..., 2 or 3]:
// every pixel's place (x, y, ...) turned by theta.
Status AffineGrid(FunctionBody& body) {
  const int64_t axes = body.InputDim(0, 1);
  const DataType type = body.InputType(0);
  if ((axes != 2 && axes != 3) || type == DataType::kUndefined) {
    return Unimplemented("the shape or type of theta is not known");
  }
  const Operand spatial =
      Slice(body, body.Input(1), body.Integers({2}), body.Integers({2 + axes}), 0);
  const Operand one = body.Integers({1});
  const Operand shape = body.Call("Concat", {spatial, one}, AxisOf(0));
  std::vector<Operand> coordinates;
  for (int64_t axis = axes; axis-- > 0;) {
    const Operand extent =
        body.Call("Gather", {spatial, body.Number(static_cast<double>(axis), DataType::kInt64)});
    std::vector<int64_t> along(static_cast<size_t>(axes) + 1, 1);
    along[static_cast<size_t>(axis)] = -1;
    const Operand places =
        body.Call("Reshape", {PixelPlaces(body, extent, type), body.Integers(along)});
    coordinates.push_back(body.Call("Expand", {places, shape}));
  }
  coordinates.push_back(body.Call("Expand", {body.Number(1, type), shape}));
  const Operand points = body.CallMany("Concat", coordinates, 1, AxisOf(-1))[0];
  const Operand rows = body.Call("Reshape", {points, body.Integers({1, -1, axes + 1})});
  const Operand turned = body.Call(
      "MatMul", {rows, body.Call("Transpose", {body.Input(0)},
                                 MakeAttributes({{"perm", std::vector<int64_t>{0, 2, 1}}}))});
  const Operand batch = DimensionOf(body, body.Input(0), 0);
  const Operand out = body.Call("Concat", {batch, spatial, body.Integers({axes})}, AxisOf(0));
  body.Return(0, body.Call("Reshape", {turned, out}));
  return Status::Ok();
}

constexpr int kAll = 1 << 30;
constexpr FunctionEntry kFunctions[] = {
    {"", "AffineGrid", 20, kAll, AffineGrid},
    {"", "CenterCropPad", 18, kAll, CenterCropPad},
};

}  // namespace

std::span<const FunctionEntry> ImageFunctions() { return kFunctions; }

}  // namespace onnxd
