// Transpose, Slice, Concat, Split, Expand, Tile, Pad, DepthToSpace: copies with strides.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "runtime/base/checked_math.h"
#include "runtime/kernel/kernel.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/ops/slice.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr const char* kNeedsValues = "the output shape depends on values that are not known yet";

constexpr int64_t kCopyGrain = 32 << 10;        // elements of a thread, at least
constexpr int64_t kCopyBytesGrain = 128 << 10;  // and bytes

// What one thread copies: elements from these offsets on.
struct CopyPart {
  StridedLoop<2> loop;
  int64_t out_offset, in_offset;
};

// Cuts the first dimension that has enough for all threads.
std::vector<CopyPart> Divide(const StridedLoop<2>& loop, int64_t in_offset, int threads) {
  const int64_t count = loop.outer_count() * loop.inner_count();
  const int64_t wanted = std::clamp<int64_t>(count / kCopyGrain, 1, threads);
  const auto axis = static_cast<size_t>(
      std::find_if(loop.dims.begin(), loop.dims.end(), [&](int64_t d) { return d >= wanted; }) -
      loop.dims.begin());
  if (wanted == 1 || axis == loop.dims.size()) return {{loop, 0, in_offset}};
  std::vector<CopyPart> parts;
  const int64_t size = loop.dims[axis], share = (size + wanted - 1) / wanted;
  for (int64_t begin = 0; begin < size; begin += share) {
    CopyPart& part = parts.emplace_back(
        CopyPart{loop, begin * loop.strides[0][axis], in_offset + begin * loop.strides[1][axis]});
    part.loop.dims[axis] = std::min(share, size - begin);
  }
  return parts;
}

PreparedKernel CopyKernel(StridedLoop<2> loop, DataType type, int64_t in_offset, int threads) {
  const auto width = static_cast<size_t>(DataTypeBits(type) / 8);
  loop.Merge();
  PreparedKernel prepared;
  prepared.compute = [parts = Divide(loop, in_offset, threads), width](const KernelContext& k) {
    const auto bytes = static_cast<int64_t>(width);
    k.pool().ParallelFor(static_cast<int64_t>(parts.size()), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const CopyPart& part = parts[static_cast<size_t>(i)];
        CopyStrided(part.loop, width, k.output<std::byte>(0) + part.out_offset * bytes,
                    k.input<std::byte>(0) + part.in_offset * bytes);
      }
    });
    return Status::Ok();
  };
  return prepared;
}

PreparedKernel NothingToCopy() {
  PreparedKernel prepared;
  prepared.compute = [](const KernelContext&) { return Status::Ok(); };
  return prepared;
}

// Copies input 0 where `loop` says; most operators here are this.
template <typename MakeLoop>
Result<std::unique_ptr<Kernel>> StridedKernel(const KernelInfo& info, MakeLoop make_loop) {
  const DataType type = info.InputType(0);
  if (!IsMovable(type)) return DeclineType(info.node.op_type, type);
  return MakeKernel([type, make_loop](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[0].shape == nullptr) return FailedPrecondition(kNeedsValues);
    int64_t in_offset = 0;
    ONNXD_ASSIGN_OR_RETURN(StridedLoop<2> loop, make_loop(context, in_offset));
    if (context.OutputShape(0).ElementCount() == 0) return NothingToCopy();
    return CopyKernel(std::move(loop), type, in_offset, context.threads);
  });
}

// The known elements of an int input, or of an attribute where the version has one.
Result<std::vector<int64_t>> Ints(const PrepareContext& context, size_t input,
                                  std::string_view attribute, std::vector<int64_t> fallback) {
  if (!attribute.empty() && context.node.attributes.Has(attribute)) {
    return context.node.attributes.Ints(attribute);
  }
  if (!context.HasInput(input)) return fallback;
  const Tensor* value = context.inputs[input].value;
  if (value == nullptr) return FailedPrecondition(kNeedsValues);
  return IntElements(*value).value_or(fallback);
}

std::vector<int64_t> Iota(size_t count) {
  std::vector<int64_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeTranspose(const KernelInfo& info) {
  return StridedKernel(info, [](const PrepareContext& context, int64_t&) -> Result<StridedLoop<2>> {
    const Shape& in = context.InputShape(0);
    std::vector<int64_t> order = context.node.attributes.Ints("perm");
    if (order.empty()) {
      order = Iota(static_cast<size_t>(in.rank()));
      std::reverse(order.begin(), order.end());
    }
    const std::vector<int64_t> in_strides = DenseStrides(in);
    StridedLoop<2> loop;
    loop.dims = context.OutputShape(0).dims();
    loop.strides[0] = DenseStrides(context.OutputShape(0));
    for (const int64_t axis : order) {
      loop.strides[1].push_back(in_strides[static_cast<size_t>(axis)]);
    }
    return loop;
  });
}

Result<std::unique_ptr<Kernel>> MakeSlice(const KernelInfo& info) {
  return StridedKernel(
      info, [](const PrepareContext& context, int64_t& in_offset) -> Result<StridedLoop<2>> {
        const Shape& in = context.InputShape(0);
        ONNXD_ASSIGN_OR_RETURN(const auto starts, Ints(context, 1, "starts", {}));
        ONNXD_ASSIGN_OR_RETURN(const auto ends, Ints(context, 2, "ends", {}));
        ONNXD_ASSIGN_OR_RETURN(auto axes, Ints(context, 3, "axes", {}));
        ONNXD_ASSIGN_OR_RETURN(auto steps, Ints(context, 4, "", {}));
        if (axes.empty()) axes = Iota(starts.size());
        if (steps.empty()) steps.assign(starts.size(), 1);
        if (ends.size() != starts.size() || axes.size() != starts.size() ||
            steps.size() != starts.size()) {
          return InvalidArgument(StrCat(Describe(context.node),
                                        ": starts, ends, axes and steps have different lengths"));
        }
        StridedLoop<2> loop;
        loop.dims = context.OutputShape(0).dims();
        loop.strides[0] = DenseStrides(context.OutputShape(0));
        loop.strides[1] = DenseStrides(in);
        const std::vector<int64_t> in_strides = loop.strides[1];
        for (size_t i = 0; i < starts.size(); ++i) {
          ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axes[i], in.rank()));
          const auto at = static_cast<size_t>(axis);
          const SliceRange range = NormalizeSlice(starts[i], ends[i], steps[i], in[axis]);
          if (range.count == 0) continue;
          in_offset += range.start * in_strides[at];
          // A step beyond the extent takes one element; its stride would only overflow.
          loop.strides[1][at] = range.count == 1 ? 0 : in_strides[at] * range.step;
        }
        return loop;
      });
}

// Crop-1, an experiment of early opsets: a window of [batch, channels, height, width].
Result<std::unique_ptr<Kernel>> MakeCrop(const KernelInfo& info) {
  return StridedKernel(
      info, [](const PrepareContext& context, int64_t& in_offset) -> Result<StridedLoop<2>> {
        const auto border = context.node.attributes.Ints("border");
        StridedLoop<2> loop;
        loop.dims = context.OutputShape(0).dims();
        loop.strides[0] = DenseStrides(context.OutputShape(0));
        loop.strides[1] = DenseStrides(context.InputShape(0));
        in_offset = border[1] * loop.strides[1][2] + border[0] * loop.strides[1][3];
        return loop;
      });
}

Result<std::unique_ptr<Kernel>> MakeExpand(const KernelInfo& info) {
  return StridedKernel(info, [](const PrepareContext& context, int64_t&) -> Result<StridedLoop<2>> {
    StridedLoop<2> loop;
    loop.dims = context.OutputShape(0).dims();
    loop.strides[0] = DenseStrides(context.OutputShape(0));
    loop.strides[1] = BroadcastStrides(context.InputShape(0), context.OutputShape(0));
    return loop;
  });
}

Result<std::unique_ptr<Kernel>> MakeTile(const KernelInfo& info) {
  return StridedKernel(info, [](const PrepareContext& context, int64_t&) -> Result<StridedLoop<2>> {
    // Each axis becomes a pair (repeat, element).
    const Shape& in = context.InputShape(0);
    const Shape& out = context.OutputShape(0);
    const std::vector<int64_t> in_strides = DenseStrides(in), out_strides = DenseStrides(out);
    if (2 * in.rank() > kMaxRank) return Unimplemented("Tile of this rank is not supported");
    StridedLoop<2> loop;
    for (int axis = 0; axis < in.rank(); ++axis) {
      const auto at = static_cast<size_t>(axis);
      const int64_t repeats = in[axis] == 0 ? 0 : out[axis] / in[axis];
      loop.dims.insert(loop.dims.end(), {repeats, in[axis]});
      loop.strides[0].insert(loop.strides[0].end(), {out_strides[at] * in[axis], out_strides[at]});
      loop.strides[1].insert(loop.strides[1].end(), {0, in_strides[at]});
    }
    return loop;
  });
}

// DepthToSpace (DCR and CRD modes) and SpaceToDepth: a transpose of the input seen with six axes.
Result<std::unique_ptr<Kernel>> MakeDepthToSpace(const KernelInfo& info) {
  return StridedKernel(info, [](const PrepareContext& context, int64_t&) -> Result<StridedLoop<2>> {
    const Shape& in = context.InputShape(0);
    const Shape& out = context.OutputShape(0);
    const int64_t block = context.node.attributes.Int("blocksize", 1);
    const bool to_space = context.node.op_type == "DepthToSpace";
    const bool column_row = context.node.attributes.String("mode", "DCR") == "CRD";
    // The tensor with channels apart (deep) and the one with pixels apart (wide).
    const Shape& deep = to_space ? in : out;
    const int64_t channels = deep[1] / (block * block), height = deep[2], width = deep[3];
    StridedLoop<2> loop;
    loop.dims = {in[0], channels, height, block, width, block};  // n, c, y, by, x, bx
    const int64_t plane = height * width;
    const int64_t image = deep.ElementCount(1, 4);
    const std::vector<int64_t> wide = {
        image, plane * block * block, width * block * block, width * block, block, 1};
    const std::vector<int64_t> deep_strides =
        column_row
            ? std::vector<int64_t>{image, block * block * plane, width, block * plane, 1, plane}
            : std::vector<int64_t>{image, plane,           width, block * channels * plane,
                                   1,     channels * plane};
    loop.strides[0] = to_space ? wide : deep_strides;
    loop.strides[1] = to_space ? deep_strides : wide;
    if (to_space) return loop;
    // In the order of the output, whose rows are long.
    const auto ordered = [](const std::vector<int64_t>& axes) {
      return std::vector<int64_t>{axes[0], axes[3], axes[5], axes[1], axes[2], axes[4]};
    };
    return StridedLoop<2>{ordered(loop.dims), {ordered(loop.strides[0]), ordered(loop.strides[1])}};
  });
}

namespace {

// Copies `rows` pieces of as many bytes, which follow each other at `from`, to every `step` bytes.
template <size_t bytes>
void SpreadPieces(const std::byte* from, int64_t rows, std::byte* to, int64_t step) {
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(to + row * step, from + row * static_cast<int64_t>(bytes), bytes);
  }
}

void SpreadPieces(const std::byte* from, int64_t bytes, int64_t rows, std::byte* to, int64_t step) {
  switch (bytes) {
    case 0:
      return;
    case 4:
      return SpreadPieces<4>(from, rows, to, step);
    case 8:
      return SpreadPieces<8>(from, rows, to, step);
    case 16:
      return SpreadPieces<16>(from, rows, to, step);
    default:
      for (int64_t row = 0; row < rows; ++row) {
        std::memcpy(to + row * step, from + row * bytes, static_cast<size_t>(bytes));
      }
  }
}

// A tensor along whose axis other tensors follow each other: each of its rows has a piece of each.
class Pieces {
 public:
  explicit Pieces(std::vector<int64_t> bytes)
      : bytes_(std::move(bytes)),
        step_(std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0})) {}

  size_t count() const { return bytes_.size(); }
  int64_t bytes(size_t i) const { return bytes_[i]; }
  int64_t step() const { return step_; }

  // Cuts bytes [begin, end) of all rows into whole rows [first, last), and into copy(i, offset of
  // piece i's tensor, offset of the whole, size).
  template <typename WholeRows, typename Copy>
  void ForRange(int64_t begin, int64_t end, WholeRows whole_rows, Copy copy) const {
    const int64_t first = (begin + step_ - 1) / step_, last = end / step_;
    if (first > last) return ForPart(last, begin - last * step_, end - last * step_, copy);
    ForPart(first - 1, begin - (first - 1) * step_, step_, copy);
    if (first < last) whole_rows(first, last);
    ForPart(last, 0, end - last * step_, copy);
  }

  // Bytes [begin, end) of a row.
  template <typename Copy>
  void ForPart(int64_t row, int64_t begin, int64_t end, Copy copy) const {
    int64_t start = 0;
    for (size_t i = 0; i < bytes_.size() && start < end; start += bytes_[i++]) {
      const int64_t from = std::max(begin, start), to = std::min(end, start + bytes_[i]);
      if (from < to) copy(i, row * bytes_[i] + from - start, row * step_ + from, to - from);
    }
  }

 private:
  std::vector<int64_t> bytes_;
  int64_t step_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeConcat(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsMovable(type)) return DeclineType("Concat", type);
  return MakeKernel([type](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[0].shape == nullptr) return FailedPrecondition(kNeedsValues);
    const Shape& out = context.OutputShape(0);
    const int64_t fallback = context.node.since_version < 4 ? 1 : 0;
    ONNXD_ASSIGN_OR_RETURN(
        const int axis, NormalizeAxis(context.node.attributes.Int("axis", fallback), out.rank()));
    const int64_t width = DataTypeBits(type) / 8;
    const int64_t outer = out.ElementCount(0, axis);
    std::vector<int64_t> bytes;  // of each input per outer index
    for (const OperandInfo& input : context.inputs) {
      bytes.push_back(input.shape->ElementCount(axis, out.rank()) * width);
    }
    PreparedKernel prepared;
    const Pieces pieces(std::move(bytes));
    prepared.compute = [pieces, outer](const KernelContext& k) {
      auto* whole = k.output<std::byte>(0);
      const auto copy = [&](size_t i, int64_t from, int64_t to, int64_t size) {
        std::memcpy(whole + to, k.input<std::byte>(i) + from, static_cast<size_t>(size));
      };
      const auto copy_rows = [&](int64_t first, int64_t last) {
        constexpr int64_t kRows = 64;  // whose pieces of the result stay cached
        for (int64_t row = first; row < last; row += kRows) {
          const int64_t rows = std::min(kRows, last - row);
          auto* to = whole + row * pieces.step();
          for (size_t i = 0; i < pieces.count(); to += pieces.bytes(i++)) {
            SpreadPieces(k.input<std::byte>(i) + row * pieces.bytes(i), pieces.bytes(i), rows, to,
                         pieces.step());
          }
        }
      };
      k.pool().ParallelFor(outer * pieces.step(), kCopyBytesGrain, [&](int64_t begin, int64_t end) {
        pieces.ForRange(begin, end, copy_rows, copy);
      });
      return Status::Ok();
    };
    return prepared;
  });
}

namespace {

// The extent of output `i` of a Split, also of one that is left out. Source: ONNX Split-18.
Result<int64_t> PartExtent(const PrepareContext& context, size_t i, int axis) {
  if (context.outputs[i].shape != nullptr) return context.OutputShape(i)[axis];
  if (context.HasOutput(i)) return FailedPrecondition(kNeedsValues);
  if (context.HasInput(1)) {
    const Tensor* given = context.inputs[1].value;
    return given != nullptr ? Result<int64_t>(given->elements<int64_t>()[i])
                            : FailedPrecondition(kNeedsValues);
  }
  const auto sizes = context.node.attributes.Ints("split");
  if (!sizes.empty()) return sizes[i];
  const int64_t whole = context.InputShape(0)[axis];
  const auto count = static_cast<int64_t>(context.outputs.size());
  const int64_t chunk = (whole + count - 1) / count;
  return std::clamp<int64_t>(whole - static_cast<int64_t>(i) * chunk, 0, chunk);
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeSplit(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsMovable(type)) return DeclineType("Split", type);
  return MakeKernel([type](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& in = context.InputShape(0);
    ONNXD_ASSIGN_OR_RETURN(const int axis,
                           NormalizeAxis(context.node.attributes.Int("axis", 0), in.rank()));
    const int64_t width = DataTypeBits(type) / 8;
    const int64_t outer = in.ElementCount(0, axis);
    std::vector<int64_t> bytes;
    for (size_t i = 0; i < context.outputs.size(); ++i) {
      ONNXD_ASSIGN_OR_RETURN(const int64_t extent, PartExtent(context, i, axis));
      bytes.push_back(extent * in.ElementCount(axis + 1, in.rank()) * width);
    }
    const Pieces pieces(std::move(bytes));
    PreparedKernel prepared;
    prepared.compute = [pieces, outer](const KernelContext& k) {
      const auto* whole = k.input<std::byte>(0);
      const auto copy = [&](size_t i, int64_t to, int64_t from, int64_t size) {
        if (k.output<std::byte>(i) == nullptr) return;
        std::memcpy(k.output<std::byte>(i) + to, whole + from, static_cast<size_t>(size));
      };
      const auto copy_rows = [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row) {
          pieces.ForPart(row, 0, pieces.step(), copy);
        }
      };
      k.pool().ParallelFor(outer * pieces.step(), kCopyBytesGrain, [&](int64_t begin, int64_t end) {
        pieces.ForRange(begin, end, copy_rows, copy);
      });
      return Status::Ok();
    };
    return prepared;
  });
}

namespace {

enum class PadMode { kConstant, kReflect, kEdge, kWrap };

// The input index that output position `i` of an axis reads; -1: the constant.
int64_t PadSource(PadMode mode, int64_t i, int64_t extent) {
  if (i >= 0 && i < extent) return i;
  if (mode == PadMode::kConstant || extent == 0) return -1;
  if (mode == PadMode::kEdge) return i < 0 ? 0 : extent - 1;
  if (mode == PadMode::kWrap) return ((i % extent) + extent) % extent;
  if (extent == 1) return 0;
  const int64_t period = 2 * (extent - 1);
  const int64_t folded = ((i % period) + period) % period;
  return folded < extent ? folded : period - folded;
}

struct PadAxis {
  int64_t in, out, begin;
};

// Fewer and longer axes: one without padding is part of the axis before it where elements stay
// neighbours, which they always do beside constants.
std::vector<PadAxis> MergedAxes(const std::vector<PadAxis>& axes, PadMode mode) {
  std::vector<PadAxis> merged;
  for (const PadAxis& axis : axes) {
    const bool plain = axis.begin == 0 && axis.in == axis.out;
    if (merged.empty() || !plain || (mode != PadMode::kConstant && axis.in != 1)) {
      merged.push_back(axis);
      continue;
    }
    PadAxis& last = merged.back();
    last = {last.in * axis.in, last.out * axis.in, last.begin * axis.in};
  }
  return merged;
}

struct PadPlan {
  Shape out;                                  // merged, as all of this
  std::vector<std::vector<int64_t>> sources;  // per axis and output position
  std::vector<int64_t> in_strides;
  int64_t run_begin, run_end;  // of the last axis: neighbours that are neighbours in the input, too
  size_t input_of_value;       // 0: none
  float attribute_value;
};

template <typename T>
void PadTyped(const PadPlan& plan, const T* in, T* out, T fill) {
  const int rank = plan.out.rank();
  if (rank == 0) {
    *out = *in;
    return;
  }
  const auto last = static_cast<size_t>(rank - 1);
  const std::vector<int64_t>& inner = plan.sources[last];
  std::array<int64_t, kMaxRank> index{};
  const int64_t rows = plan.out.ElementCount(0, rank - 1);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t base = 0;
    bool outside = false;
    for (size_t axis = 0; axis < last; ++axis) {
      const int64_t source = plan.sources[axis][static_cast<size_t>(index[axis])];
      outside = outside || source < 0;
      base += source * plan.in_strides[axis];
    }
    if (outside) {
      out = std::fill_n(out, inner.size(), fill);
    } else {
      const auto pad = [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) {
          const int64_t source = inner[static_cast<size_t>(i)];
          *out++ = source < 0 ? fill : in[base + source];
        }
      };
      pad(0, plan.run_begin);
      if (plan.run_begin < plan.run_end) {
        out = std::copy_n(in + base + inner[static_cast<size_t>(plan.run_begin)],
                          plan.run_end - plan.run_begin, out);
      }
      pad(plan.run_end, static_cast<int64_t>(inner.size()));
    }
    for (size_t axis = last; axis-- > 0;) {
      if (++index[axis] < plan.out[static_cast<int>(axis)]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakePad(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsMovable(type)) return DeclineType("Pad", type);
  const std::string mode_name = info.node.attributes.String("mode", "constant");
  const PadMode mode = mode_name == "reflect" ? PadMode::kReflect
                       : mode_name == "edge"  ? PadMode::kEdge
                       : mode_name == "wrap"  ? PadMode::kWrap
                                              : PadMode::kConstant;
  if (mode == PadMode::kConstant && mode_name != "constant") {
    return InvalidArgument(StrCat("Pad has no mode '", mode_name, "'"));
  }
  return MakeKernel([type, mode](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[0].shape == nullptr) return FailedPrecondition(kNeedsValues);
    const Shape& in = context.InputShape(0);
    const auto rank = static_cast<size_t>(in.rank());
    const char* attribute = context.node.since_version == 1 ? "paddings" : "pads";
    ONNXD_ASSIGN_OR_RETURN(const auto pads, Ints(context, 1, attribute, {}));
    ONNXD_ASSIGN_OR_RETURN(const auto axes, Ints(context, 3, "", Iota(rank)));
    std::vector<int64_t> begin(rank, 0);
    for (size_t i = 0; i < axes.size(); ++i) {
      ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axes[i], in.rank()));
      begin[static_cast<size_t>(axis)] = pads[i];
    }
    const Shape& out = context.OutputShape(0);
    std::vector<PadAxis> padded;
    for (size_t axis = 0; axis < rank; ++axis) {
      padded.push_back({in[static_cast<int>(axis)], out[static_cast<int>(axis)], begin[axis]});
    }
    padded = MergedAxes(padded, mode);
    PadPlan plan;
    Shape merged_in;
    for (const PadAxis& axis : padded) {
      plan.out.Append(axis.out);
      merged_in.Append(axis.in);
      std::vector<int64_t>& sources = plan.sources.emplace_back();
      for (int64_t i = 0; i < axis.out; ++i) {
        sources.push_back(PadSource(mode, i - axis.begin, axis.in));
      }
    }
    plan.in_strides = DenseStrides(merged_in);
    plan.run_begin = plan.run_end = 0;
    if (!padded.empty()) {
      const PadAxis& last = padded.back();
      plan.run_begin = std::clamp<int64_t>(last.begin, 0, last.out);
      plan.run_end = std::clamp<int64_t>(last.begin + last.in, plan.run_begin, last.out);
    }
    plan.input_of_value = context.HasInput(2) ? 2 : 0;
    plan.attribute_value = context.node.attributes.Float("value", 0.0f);
    const bool empty = plan.out.ElementCount() == 0;
    PreparedKernel prepared;
    prepared.compute = [type, plan, empty](const KernelContext& k) {
      if (empty) return Status::Ok();
      DispatchWidth(type, [&]<typename T>() {
        T fill{};
        if (plan.input_of_value != 0) {
          fill = *k.input<T>(plan.input_of_value);
        } else if constexpr (sizeof(T) == sizeof(float)) {
          if (type == DataType::kFloat) fill = std::bit_cast<T>(plan.attribute_value);
        }
        PadTyped(plan, k.input<T>(0), k.output<T>(0), fill);
      });
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeTrilu(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsMovable(type)) return DeclineType("Trilu", type);
  const bool upper = info.node.attributes.Int("upper", 1) != 0;
  return MakeKernel([type, upper](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    if (shape.rank() < 2) return InvalidArgument("Trilu needs a matrix");
    const int64_t rows = shape[shape.rank() - 2], columns = shape[shape.rank() - 1];
    const int64_t matrices = shape.ElementCount(0, shape.rank() - 2);
    const bool has_offset = context.HasInput(1);
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      const int64_t offset = has_offset ? *k.input<int64_t>(1) : 0;
      DispatchWidth(type, [&]<typename T>() {
        const T* in = k.input<T>(0);
        T* out = k.output<T>(0);
        for (int64_t row = 0; row < matrices * rows; ++row) {
          // The columns that are kept.
          const int64_t diagonal = SaturatingAdd(row % rows, offset);
          const int64_t first = upper ? std::clamp<int64_t>(diagonal, 0, columns) : 0;
          const int64_t end =
              upper ? columns : std::clamp<int64_t>(SaturatingAdd(diagonal, 1), 0, columns);
          T* to = out + row * columns;
          std::fill_n(to, first, T{});
          std::copy(in + row * columns + first, in + row * columns + end, to + first);
          std::fill_n(to + end, columns - end, T{});
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
