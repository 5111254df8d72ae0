// NonMaxSuppression-10, -11. A group of lanes for a class of an image picks the best box that is
// left, again and again, and drops those that overlap it. How many there are is read back.
#include <algorithm>
#include <array>

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/gpu_kernel.h"
#include "runtime/tensor/device_tensor.h"

namespace onnxd {
namespace {

constexpr std::string_view kSource = R"(
typedef struct { f32 y1, x1, y2, x2; } Box;

FUNCTION Box box_at(GLOBAL const f32* boxes, i64 i) {
  GLOBAL const f32* b = boxes + i * 4;
  Box box;
#if CENTERED
  box.y1 = b[1] - b[3] / 2.0f;
  box.x1 = b[0] - b[2] / 2.0f;
  box.y2 = b[1] + b[3] / 2.0f;
  box.x2 = b[0] + b[2] / 2.0f;
#else
  box.y1 = fmin(b[0], b[2]);
  box.x1 = fmin(b[1], b[3]);
  box.y2 = fmax(b[0], b[2]);
  box.x2 = fmax(b[1], b[3]);
#endif
  return box;
}

FUNCTION f32 overlap_of(Box a, Box b) {
  const f32 height = fmin(a.y2, b.y2) - fmax(a.y1, b.y1);
  const f32 width = fmin(a.x2, b.x2) - fmax(a.x1, b.x1);
  if (height <= 0.0f || width <= 0.0f) return 0.0f;
  const f32 common = height * width;
  const f32 whole = (a.y2 - a.y1) * (a.x2 - a.x1) + (b.y2 - b.y1) * (b.x2 - b.x1) - common;
  return whole <= 0.0f ? 0.0f : common / whole;
}

// Whether score x at index i comes before y at j: the larger, numbers before NaN, then the first.
FUNCTION bool comes_first(f32 x, i32 i, f32 y, i32 j) {
  if (x > y || (y != y && x == x)) return true;
  const bool equal = x == y || (x != x && y != y);
  return equal && i < j;
}

#define LANES_HERE 256
// boxes [images, count, 4], scores [images, classes, count]; picked [images * classes, count].
KERNEL pick_boxes(GLOBAL const f32* boxes, GLOBAL const f32* scores, GLOBAL i32* picked,
                  GLOBAL i32* counts, GLOBAL u8* dropped, i64 count, i64 classes, i64 most,
                  f32 threshold, i32 has_lowest, f32 lowest) {
  LOCAL f32 best_scores[LANES_HERE];
  LOCAL i32 best_places[LANES_HERE];
  const i64 lane = GROUP(0), own = lane * count;
  GLOBAL const f32* own_boxes = boxes + lane / classes * count * 4;
  for (i64 i = LANE(0); i < count; i += LANES_HERE) {
    dropped[own + i] = has_lowest != 0 && !(scores[own + i] > lowest) ? 1 : 0;
  }
  i32 found = 0;
  while (found < most) {
    i32 place = -1;
    f32 score = 0.0f;
    for (i64 i = LANE(0); i < count; i += LANES_HERE) {
      if (dropped[own + i] != 0) continue;
      const f32 s = scores[own + i];
      if (place < 0 || comes_first(s, (i32)i, score, place)) {
        place = (i32)i;
        score = s;
      }
    }
    best_scores[LANE(0)] = score;
    best_places[LANE(0)] = place;
    BARRIER();
    for (i32 width = LANES_HERE / 2; width > 0; width /= 2) {
      if (LANE(0) < width) {
        const i32 mine = best_places[LANE(0)], other = best_places[LANE(0) + width];
        const f32 a = best_scores[LANE(0)], b = best_scores[LANE(0) + width];
        if (other >= 0 && (mine < 0 || comes_first(b, other, a, mine))) {
          best_places[LANE(0)] = other;
          best_scores[LANE(0)] = b;
        }
      }
      BARRIER();
    }
    place = best_places[0];
    BARRIER();
    if (place < 0) break;
    if (LANE(0) == 0) picked[own + found] = place;
    const Box box = box_at(own_boxes, place);
    for (i64 i = LANE(0); i < count; i += LANES_HERE) {
      const bool gone = i == place || overlap_of(box_at(own_boxes, i), box) > threshold;
      if (gone) dropped[own + i] = 1;
    }
    ++found;
  }
  if (LANE(0) == 0) counts[lane] = found;
}

// out [rows, 3]: image, class, box; `begins`: the first row of each class of each image.
KERNEL list_boxes(GLOBAL const i32* picked, GLOBAL const i32* counts, GLOBAL const i64* begins,
                  GLOBAL i64* out, i64 lanes, i64 count, i64 classes) {
  const i64 index = GLOBAL_INDEX;
  if (index >= lanes * count) return;
  const i64 lane = index / count, i = index % count;
  if (i >= counts[lane]) return;
  GLOBAL i64* row = out + (begins[lane] + i) * 3;
  row[0] = lane / classes;
  row[1] = lane % classes;
  row[2] = picked[index];
}
)";

struct Sizes {
  int64_t lanes, count, classes;

  size_t picked_bytes() const { return Rounded(static_cast<size_t>(lanes * count) * 4); }
  size_t counts_bytes() const { return Rounded(static_cast<size_t>(lanes) * 4); }
  size_t begins_bytes() const { return Rounded(static_cast<size_t>(lanes) * 8); }
  size_t dropped_bytes() const { return Rounded(static_cast<size_t>(lanes * count)); }
  size_t all_bytes() const {
    return picked_bytes() + counts_bytes() + begins_bytes() + dropped_bytes();
  }
  static size_t Rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }
};

// An operand of one number on the host; `fallback` where it is absent or empty.
template <typename T>
T NumberOr(const KernelContext& k, size_t input, bool present, T fallback) {
  const T* number = present ? k.input<T>(input) : nullptr;
  return number == nullptr ? fallback : *number;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuNonMaxSuppression(const KernelInfo& info,
                                                         GpuDevice& device) {
  if (info.InputType(0) != DataType::kFloat || info.InputType(1) != DataType::kFloat) {
    return DeclineOnDevice(info, info.InputType(0));
  }
  const bool centered = info.node.attributes.Int("center_point_box", 0) != 0;
  const std::string source = StrCat(Define("CENTERED", centered ? 1 : 0), kSource);
  const auto prepare = [=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& boxes = context.InputShape(0);
    const Shape& scores = context.InputShape(1);
    if (boxes.rank() != 3 || scores.rank() != 3 || boxes[2] != 4 || boxes[0] != scores[0] ||
        boxes[1] != scores[2]) {
      return InvalidArgument(StrCat(Describe(context.node), ": boxes of shape ", boxes.ToString(),
                                    " and scores of shape ", scores.ToString(), " do not match"));
    }
    const Sizes sizes{scores[0] * scores[1], scores[2], scores[1]};
    std::array<bool, 5> has{};
    for (size_t i = 2; i < has.size(); ++i) {
      has[i] = context.HasInput(i) && context.InputShape(i).ElementCount() > 0;
    }
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram pick, device.FindKernel(source, "pick_boxes"));
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram list, device.FindKernel(source, "list_boxes"));
    PreparedKernel prepared;
    prepared.scratch_bytes = sizes.all_bytes();
    prepared.compute = [=, &device](const KernelContext& k) -> Status {
      const auto most = std::clamp<int64_t>(NumberOr<int64_t>(k, 2, has[2], 0), 0, sizes.count);
      const auto threshold = NumberOr<float>(k, 3, has[3], 0),
                 lowest = NumberOr<float>(k, 4, has[4], 0);
      auto* picked = k.scratch<std::byte>();
      auto* counts = picked + sizes.picked_bytes();
      auto* begins = counts + sizes.counts_bytes();
      auto* dropped = begins + sizes.begins_bytes();
      std::vector<int32_t> found(static_cast<size_t>(sizes.lanes), 0);
      LaunchGrid grid;
      grid.groups[0] = static_cast<uint32_t>(sizes.lanes);
      grid.lanes[0] = 256;
      if (most > 0) {
        LaunchArguments arguments;
        arguments.Pointer(k.input<void>(0)).Pointer(k.input<void>(1)).Pointer(picked);
        arguments.Pointer(counts).Pointer(dropped).Value(sizes.count).Value(sizes.classes);
        arguments.Value(most).Value(threshold).Value(int32_t{has[4] ? 1 : 0}).Value(lowest);
        ONNXD_RETURN_IF_ERROR(Launch(k, pick, grid, arguments));
        ONNXD_RETURN_IF_ERROR(k.stream().CopyOut(found.data(), counts, found.size() * 4));
        ONNXD_RETURN_IF_ERROR(k.stream().Synchronize());
      }
      std::vector<int64_t> first(found.size());
      int64_t rows = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        first[i] = rows;
        rows += found[i];
      }
      ONNXD_ASSIGN_OR_RETURN(Tensor out,
                             Tensor::CreateOn(device, DataType::kInt64, Shape{rows, 3}));
      if (rows > 0) {
        ONNXD_RETURN_IF_ERROR(k.stream().CopyIn(begins, first.data(), first.size() * 8));
        LaunchArguments arguments;
        arguments.Pointer(picked).Pointer(counts).Pointer(begins).Pointer(out.mutable_raw());
        arguments.Value(sizes.lanes).Value(sizes.count).Value(sizes.classes);
        ONNXD_RETURN_IF_ERROR(
            Launch(k, list, LaunchGrid::Over(sizes.lanes * sizes.count), arguments));
      }
      k.output_value(0) = std::move(out);
      return Status::Ok();
    };
    return prepared;
  };
  return MakeGpuKernel(prepare, {2, 3, 4});
}

}  // namespace onnxd
