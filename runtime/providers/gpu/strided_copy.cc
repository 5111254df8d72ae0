#include "runtime/providers/gpu/strided_copy.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/pointwise.h"

namespace onnxd {
namespace {

constexpr std::string_view kSource = R"(
KERNEL copy_strided(GLOBAL const X* in, GLOBAL X* out, i64 in_offset, i64 out_offset, i64 count,
                    Dims dims, Dims in_strides, Dims out_strides) {
  const i64 i = GLOBAL_INDEX;
  if (i >= count) return;
  i64 from = in_offset, to = out_offset;
  INDEX rest = (INDEX)i;
  UNROLL
  for (i32 axis = RANK - 1; axis > 0; --axis) {
    const INDEX dim = (INDEX)dims.at[axis];
    const INDEX at = rest % dim;
    rest /= dim;
    from += (i64)at * in_strides.at[axis];
    to += (i64)at * out_strides.at[axis];
  }
  from += (i64)rest * in_strides.at[0];
  to += (i64)rest * out_strides.at[0];
  out[to] = in[from];
}

// The axis that is dense in the input (columns here) is not the one that is dense in the output
// (rows): tiles of 32 by 32 go through local memory, so that both sides are read and written along
// their dense axis. `dims` and strides are of the other axes.
KERNEL copy_transposed(GLOBAL const X* in, GLOBAL X* out, i64 in_offset, i64 out_offset, i64 rows,
                       i64 columns, i64 in_row, i64 out_column, Dims dims, i32 rank,
                       Dims in_strides, Dims out_strides, i64 tiles_down, i64 tiles_across) {
  LOCAL X tile[32 * 33];
  i64 group = GROUP(0);
  const i64 across = (group % tiles_across) * 32;
  group /= tiles_across;
  const i64 down = (group % tiles_down) * 32;
  group /= tiles_down;
  i64 from = in_offset, to = out_offset;
  for (i32 axis = rank - 1; axis >= 0; --axis) {
    const i64 at = group % dims.at[axis];
    group /= dims.at[axis];
    from += at * in_strides.at[axis];
    to += at * out_strides.at[axis];
  }
  const i32 lane = LANE(0) % 32, first = LANE(0) / 32;
  for (i32 r = first; r < 32; r += 8) {
    if (down + r < rows && across + lane < columns) {
      tile[r * 33 + lane] = in[from + (down + r) * in_row + across + lane];
    }
  }
  BARRIER();
  for (i32 c = first; c < 32; c += 8) {
    if (across + c < columns && down + lane < rows) {
      out[to + (across + c) * out_column + down + lane] = tile[lane * 33 + c];
    }
  }
}
)";

std::string SourceOf(std::string_view moved, size_t rank, bool wide = false) {
  return StrCat(Define("X", moved), Define("INDEX", wide ? "u64" : "u32"),
                Define("RANK", static_cast<int64_t>(rank)), kSource);
}

using PieceLaunch = std::function<Status(const KernelContext&)>;

struct Ends {
  size_t input, output;
  int64_t in_offset, out_offset;
};

PieceLaunch PlainCopy(const Ends& ends, int64_t bytes, int64_t width) {
  return [=](const KernelContext& k) {
    return k.stream().CopyWithin(k.output<std::byte>(ends.output) + ends.out_offset * width,
                                 k.input<std::byte>(ends.input) + ends.in_offset * width,
                                 static_cast<size_t>(bytes));
  };
}

// Elements that lie together on both sides are moved by up to 16 bytes at once: so many of `width`
// bytes each. Requires a loop of at least one axis.
int64_t TogetherIn(const Ends& ends, const DeviceLoop& loop, int64_t width) {
  constexpr int64_t kMostBytes = 16;
  if (loop.strides[0].back() != 1 || loop.strides[1].back() != 1) return 1;
  int64_t together = kMostBytes / width;
  const auto shrink = [&](int64_t value) {
    while (value % together != 0) together /= 2;
  };
  shrink(loop.dims.back());
  shrink(ends.in_offset);
  shrink(ends.out_offset);
  for (const auto& strides : loop.strides) {
    for (size_t axis = 0; axis + 1 < strides.size(); ++axis) shrink(strides[axis]);
  }
  return together;
}

Result<PieceLaunch> StridedLaunch(GpuDevice& device, int64_t width, Ends ends, DeviceLoop loop,
                                  int64_t count) {
  const int64_t together = TogetherIn(ends, loop, width);
  count /= together;
  loop.dims.back() /= together;
  ends.in_offset /= together;
  ends.out_offset /= together;
  for (auto& strides : loop.strides) {
    for (size_t axis = 0; axis + 1 < strides.size(); ++axis) strides[axis] /= together;
  }
  ONNXD_ASSIGN_OR_RETURN(const DeviceDims dims, ToDeviceDims(loop.dims));
  ONNXD_ASSIGN_OR_RETURN(const DeviceDims in_strides, ToDeviceDims(loop.strides[0]));
  ONNXD_ASSIGN_OR_RETURN(const DeviceDims out_strides, ToDeviceDims(loop.strides[1]));
  const std::string source =
      SourceOf(MovedBy(width * together), loop.dims.size(), count > (int64_t{1} << 31));
  ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "copy_strided"));
  return PieceLaunch([=](const KernelContext& k) {
    LaunchArguments arguments;
    arguments.Pointer(k.input<void>(ends.input)).Pointer(k.output<void>(ends.output));
    arguments.Value(ends.in_offset).Value(ends.out_offset).Value(count);
    arguments.Value(dims).Value(in_strides).Value(out_strides);
    return Launch(k, kernel, LaunchGrid::Over(count), arguments);
  });
}

// Position of the axis of stride 1; -1: there is none.
int DenseAxis(const std::vector<int64_t>& strides) {
  const auto found = std::find(strides.begin(), strides.end(), 1);
  return found == strides.end() ? -1 : static_cast<int>(found - strides.begin());
}

Result<PieceLaunch> TransposedLaunch(GpuDevice& device, int64_t width, const Ends& ends,
                                     DeviceLoop loop, int in_axis, int out_axis) {
  const auto columns_at = static_cast<size_t>(in_axis), rows_at = static_cast<size_t>(out_axis);
  const int64_t rows = loop.dims[rows_at], columns = loop.dims[columns_at];
  const int64_t in_row = loop.strides[0][rows_at], out_column = loop.strides[1][columns_at];
  for (const size_t axis : {std::max(rows_at, columns_at), std::min(rows_at, columns_at)}) {
    const auto at = static_cast<std::ptrdiff_t>(axis);
    loop.dims.erase(loop.dims.begin() + at);
    for (auto& s : loop.strides) s.erase(s.begin() + at);
  }
  ONNXD_ASSIGN_OR_RETURN(const DeviceDims dims, ToDeviceDims(loop.dims));
  ONNXD_ASSIGN_OR_RETURN(const DeviceDims in_strides, ToDeviceDims(loop.strides[0]));
  ONNXD_ASSIGN_OR_RETURN(const DeviceDims out_strides, ToDeviceDims(loop.strides[1]));
  ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel,
                         device.FindKernel(SourceOf(MovedBy(width), 1), "copy_transposed"));
  const int64_t down = (rows + 31) / 32, across = (columns + 31) / 32;
  int64_t groups = down * across;
  for (const int64_t dim : loop.dims) groups *= dim;
  LaunchGrid grid;
  grid.groups[0] = static_cast<uint32_t>(groups);
  grid.lanes[0] = 256;
  return PieceLaunch([=, rank = static_cast<int32_t>(loop.dims.size())](const KernelContext& k) {
    LaunchArguments arguments;
    arguments.Pointer(k.input<void>(ends.input)).Pointer(k.output<void>(ends.output));
    arguments.Value(ends.in_offset).Value(ends.out_offset).Value(rows).Value(columns);
    arguments.Value(in_row).Value(out_column).Value(dims).Value(rank);
    arguments.Value(in_strides).Value(out_strides).Value(down).Value(across);
    return Launch(k, kernel, grid, arguments);
  });
}

Result<PieceLaunch> MakeLaunch(GpuDevice& device, DataType type, const CopyPiece& piece,
                               int64_t count) {
  const auto width = static_cast<int64_t>(DataTypeBits(type) / 8);
  const Ends ends{piece.input, piece.output, piece.in_offset, piece.out_offset};
  DeviceLoop loop{piece.dims, {piece.in_strides, piece.out_strides}};
  loop.Join();
  const auto dense = [](const std::vector<int64_t>& s) { return s.size() == 1 && s[0] == 1; };
  if (loop.dims.empty() || (dense(loop.strides[0]) && dense(loop.strides[1]))) {
    return PlainCopy(ends, count * width, width);
  }
  const int in_axis = DenseAxis(loop.strides[0]), out_axis = DenseAxis(loop.strides[1]);
  constexpr int64_t kWorthTiles = 16, kMostElements = int64_t{1} << 31;
  if (in_axis >= 0 && out_axis >= 0 && in_axis != out_axis && count < kMostElements &&
      loop.dims[static_cast<size_t>(in_axis)] >= kWorthTiles &&
      loop.dims[static_cast<size_t>(out_axis)] >= kWorthTiles) {
    return TransposedLaunch(device, width, ends, std::move(loop), in_axis, out_axis);
  }
  return StridedLaunch(device, width, ends, std::move(loop), count);
}

}  // namespace

Result<PreparedKernel> PrepareCopies(GpuDevice& device, DataType type,
                                     const std::vector<CopyPiece>& pieces) {
  std::vector<PieceLaunch> launches;
  for (const CopyPiece& piece : pieces) {
    int64_t count = 1;
    for (const int64_t dim : piece.dims) count *= dim;
    if (count == 0) continue;
    ONNXD_ASSIGN_OR_RETURN(PieceLaunch launch, MakeLaunch(device, type, piece, count));
    launches.push_back(std::move(launch));
  }
  PreparedKernel prepared;
  prepared.compute = [launches = std::move(launches)](const KernelContext& k) {
    for (const PieceLaunch& launch : launches) ONNXD_RETURN_IF_ERROR(launch(k));
    return Status::Ok();
  };
  return prepared;
}

}  // namespace onnxd
