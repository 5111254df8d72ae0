// Views, and the operators that copy elements by strides: Transpose, Slice, Concat, Split, Expand,
// Tile, DepthToSpace, SpaceToDepth.
#include <algorithm>
#include <numeric>

#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/ops/slice.h"
#include "runtime/providers/gpu/strided_copy.h"
#include "runtime/tensor/strides.h"

namespace onnxd {
namespace {

std::vector<int64_t> Iota(size_t count) {
  std::vector<int64_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// The part of input 0 that becomes output 0.
using MakePiece = Result<CopyPiece> (*)(const PrepareContext& context);

Result<std::unique_ptr<Kernel>> OnePieceKernel(const KernelInfo& info, GpuDevice& device,
                                               MakePiece make,
                                               std::initializer_list<size_t> host_inputs = {}) {
  const DataType type = info.InputType(0);
  if (MovedAs(type) == DataType::kUndefined) return DeclineOnDevice(info, type);
  return MakeGpuKernel(
      [type, make, &device](const PrepareContext& context) -> Result<PreparedKernel> {
        if (context.outputs[0].shape == nullptr) return NeedsValues();
        if (context.OutputShape(0).ElementCount() == 0) return NothingToDo();
        ONNXD_ASSIGN_OR_RETURN(CopyPiece piece, make(context));
        return PrepareCopies(device, type, {std::move(piece)});
      },
      host_inputs);
}

CopyPiece PieceOfOutput(const PrepareContext& context) {
  CopyPiece piece;
  const Shape& out = context.OutputShape(0);
  piece.dims.assign(out.dims().begin(), out.dims().end());
  piece.out_strides = DenseStrides(out);
  return piece;
}

}  // namespace

// Reshape, Flatten, Squeeze, Unsqueeze, Identity.
Result<std::unique_ptr<Kernel>> MakeGpuView(const KernelInfo&, GpuDevice&) {
  return MakeGpuKernel(
      [](const PrepareContext& context) -> Result<PreparedKernel> {
        if (context.outputs[0].shape == nullptr) return NeedsValues();
        PreparedKernel prepared = NothingToDo();
        prepared.views = {{0, 0}};
        return prepared;
      },
      {1});
}

Result<std::unique_ptr<Kernel>> MakeGpuTranspose(const KernelInfo& info, GpuDevice& device) {
  return OnePieceKernel(info, device, [](const PrepareContext& context) -> Result<CopyPiece> {
    CopyPiece piece = PieceOfOutput(context);
    const Shape& in = context.InputShape(0);
    std::vector<int64_t> order = context.node.attributes.Ints("perm");
    if (order.empty()) {
      order = Iota(static_cast<size_t>(in.rank()));
      std::reverse(order.begin(), order.end());
    }
    const std::vector<int64_t> strides = DenseStrides(in);
    for (const int64_t axis : order) {
      piece.in_strides.push_back(strides[static_cast<size_t>(axis)]);
    }
    return piece;
  });
}

Result<std::unique_ptr<Kernel>> MakeGpuSlice(const KernelInfo& info, GpuDevice& device) {
  const auto make = [](const PrepareContext& context) -> Result<CopyPiece> {
    const Shape& in = context.InputShape(0);
    ONNXD_ASSIGN_OR_RETURN(const auto starts, KnownInts(context, 1, "starts", {}));
    ONNXD_ASSIGN_OR_RETURN(const auto ends, KnownInts(context, 2, "ends", {}));
    ONNXD_ASSIGN_OR_RETURN(auto axes, KnownInts(context, 3, "axes", {}));
    ONNXD_ASSIGN_OR_RETURN(auto steps, KnownInts(context, 4, "", {}));
    if (axes.empty()) axes = Iota(starts.size());
    if (steps.empty()) steps.assign(starts.size(), 1);
    if (ends.size() != starts.size() || axes.size() != starts.size() ||
        steps.size() != starts.size()) {
      return InvalidArgument(
          StrCat(Describe(context.node), ": starts, ends, axes and steps have different lengths"));
    }
    CopyPiece piece = PieceOfOutput(context);
    piece.in_strides = DenseStrides(in);
    const std::vector<int64_t> strides = piece.in_strides;
    for (size_t i = 0; i < starts.size(); ++i) {
      ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axes[i], in.rank()));
      const auto at = static_cast<size_t>(axis);
      const SliceRange range = NormalizeSlice(starts[i], ends[i], steps[i], in[axis]);
      if (range.count == 0) continue;
      piece.in_offset += range.start * strides[at];
      // A step beyond the extent takes one element; its stride would only overflow.
      piece.in_strides[at] = range.count == 1 ? 0 : strides[at] * range.step;
    }
    return piece;
  };
  return OnePieceKernel(info, device, make, {1, 2, 3, 4});
}

Result<std::unique_ptr<Kernel>> MakeGpuExpand(const KernelInfo& info, GpuDevice& device) {
  const auto make = [](const PrepareContext& context) -> Result<CopyPiece> {
    CopyPiece piece = PieceOfOutput(context);
    piece.in_strides = BroadcastStrides(context.InputShape(0), context.OutputShape(0));
    return piece;
  };
  return OnePieceKernel(info, device, make, {1});
}

Result<std::unique_ptr<Kernel>> MakeGpuTile(const KernelInfo& info, GpuDevice& device) {
  const auto make = [](const PrepareContext& context) -> Result<CopyPiece> {
    // Each axis becomes a pair (repeat, element).
    const Shape& in = context.InputShape(0);
    const Shape& out = context.OutputShape(0);
    const std::vector<int64_t> in_strides = DenseStrides(in), out_strides = DenseStrides(out);
    CopyPiece piece;
    for (int axis = 0; axis < in.rank(); ++axis) {
      const auto at = static_cast<size_t>(axis);
      piece.dims.insert(piece.dims.end(), {out[axis] / in[axis], in[axis]});
      piece.in_strides.insert(piece.in_strides.end(), {0, in_strides[at]});
      piece.out_strides.insert(piece.out_strides.end(),
                               {out_strides[at] * in[axis], out_strides[at]});
    }
    return piece;
  };
  return OnePieceKernel(info, device, make, {1, 2});
}

// DCR and CRD modes: a transpose of the input seen with six axes.
Result<std::unique_ptr<Kernel>> MakeGpuDepthToSpace(const KernelInfo& info, GpuDevice& device) {
  return OnePieceKernel(info, device, [](const PrepareContext& context) -> Result<CopyPiece> {
    const Shape& in = context.InputShape(0);
    const Shape& out = context.OutputShape(0);
    const int64_t block = context.node.attributes.Int("blocksize", 1);
    const bool to_space = context.node.op_type == "DepthToSpace";
    const bool column_row = context.node.attributes.String("mode", "DCR") == "CRD";
    // The tensor with channels apart (deep) and the one with pixels apart (wide).
    const Shape& deep = to_space ? in : out;
    const int64_t channels = deep[1] / (block * block), height = deep[2], width = deep[3];
    const int64_t plane = height * width, image = deep.ElementCount(1, 4);
    CopyPiece piece;
    piece.dims = {in[0], channels, height, block, width, block};  // n, c, y, by, x, bx
    const std::vector<int64_t> wide = {
        image, plane * block * block, width * block * block, width * block, block, 1};
    const std::vector<int64_t> deep_strides =
        column_row
            ? std::vector<int64_t>{image, block * block * plane, width, block * plane, 1, plane}
            : std::vector<int64_t>{image, plane,           width, block * channels * plane,
                                   1,     channels * plane};
    piece.in_strides = to_space ? deep_strides : wide;
    piece.out_strides = to_space ? wide : deep_strides;
    return piece;
  });
}

Result<std::unique_ptr<Kernel>> MakeGpuConcat(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (MovedAs(type) == DataType::kUndefined) return DeclineOnDevice(info, type);
  const auto prepare = [type, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[0].shape == nullptr) return NeedsValues();
    const Shape& out = context.OutputShape(0);
    const int64_t fallback = context.node.since_version < 4 ? 1 : 0;
    ONNXD_ASSIGN_OR_RETURN(
        const int axis, NormalizeAxis(context.node.attributes.Int("axis", fallback), out.rank()));
    const int64_t step = out.ElementCount(axis, out.rank());
    std::vector<CopyPiece> pieces;
    int64_t offset = 0;
    for (size_t i = 0; i < context.inputs.size(); ++i) {
      const Shape& in = context.InputShape(i);
      const int64_t length = in.ElementCount(axis, out.rank());
      CopyPiece piece;
      piece.input = i;
      if (context.inputs[i].strides != nullptr) {
        piece.dims.assign(in.dims().begin(), in.dims().end());
        piece.in_strides = *context.inputs[i].strides;
        piece.out_strides = DenseStrides(out);
      } else {
        piece.dims = {out.ElementCount(0, axis), length};
        piece.in_strides = {length, 1};
        piece.out_strides = {step, 1};
      }
      piece.out_offset = offset;
      offset += length;
      pieces.push_back(std::move(piece));
    }
    return PrepareCopies(device, type, pieces);
  };
  return MakeGpuKernel(prepare, {}, InputSet::All());
}

Result<std::unique_ptr<Kernel>> MakeGpuSplit(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (MovedAs(type) == DataType::kUndefined) return DeclineOnDevice(info, type);
  return MakeGpuKernel(
      [type, &device](const PrepareContext& context) -> Result<PreparedKernel> {
        const Shape& in = context.InputShape(0);
        ONNXD_ASSIGN_OR_RETURN(const int axis,
                               NormalizeAxis(context.node.attributes.Int("axis", 0), in.rank()));
        const int64_t step = in.ElementCount(axis, in.rank());
        std::vector<CopyPiece> pieces;
        int64_t offset = 0;
        for (size_t i = 0; i < context.outputs.size(); ++i) {
          if (!context.HasOutput(i)) return Unimplemented("Split with an output left out");
          if (context.outputs[i].shape == nullptr) return NeedsValues();
          const int64_t length = context.OutputShape(i).ElementCount(axis, in.rank());
          CopyPiece piece;
          piece.output = i;
          piece.dims = {in.ElementCount(0, axis), length};
          piece.in_strides = {step, 1};
          piece.out_strides = {length, 1};
          piece.in_offset = offset;
          offset += length;
          pieces.push_back(std::move(piece));
        }
        return PrepareCopies(device, type, pieces);
      },
      {1});
}

}  // namespace onnxd
