#include "runtime/providers/cpu/onednn/conv_bands.h"

#include <algorithm>
#include <mutex>

#include "runtime/base/ceil_divide.h"
#include "runtime/base/checked_math.h"
#include "runtime/base/str_cat.h"

namespace onnxd::onednn {
namespace {

// Bands of at least so many multiply-adds are worth a thread of their own.
constexpr int64_t kLeastWork = 1 << 18;

// The input rows that a band of the result reads.
BandShape ShapeOf(const Window& window, int64_t height, int64_t output_height, int64_t images,
                  int64_t first, int64_t rows, int64_t& input_row) {
  if (rows == output_height) {  // what the window says of a whole image stays as it is
    input_row = 0;
    return {images, height, rows, window.pads_begin[0], window.pads_end[0]};
  }
  const int64_t reach = (window.kernel[0] - 1) * window.dilations[0];
  const int64_t begin = first * window.strides[0] - window.pads_begin[0];
  const int64_t end = begin + (rows - 1) * window.strides[0] + reach + 1;
  input_row = std::clamp<int64_t>(begin, 0, height);
  return {images, std::clamp<int64_t>(end, 0, height) - input_row, rows, input_row - begin,
          std::max<int64_t>(0, end - height)};
}

}  // namespace

Status CheckPads(const Node& node, const Window& window) {
  for (const auto* pads : {&window.pads_begin, &window.pads_end}) {
    for (const int64_t pad : *pads) {
      if (pad < 0) return InvalidArgument(StrCat(Describe(node), ": padding of ", pad));
    }
  }
  return Status::Ok();
}

int64_t BandsPerImage(const Shape& y, int64_t products, int threads) {
  if (y[0] >= threads) return 1;
  const int64_t work = SaturatingMultiply(y[1] * y[2] * y[3], products);
  const int64_t bands =
      std::min<int64_t>(CeilDivide(threads, std::max<int64_t>(1, y[0])), 1 + work / kLeastWork);
  return std::clamp<int64_t>(bands, 1, y[1]);
}

Bands CutIntoBands(const Window& window, const Shape& x, const Shape& y, int64_t per_image,
                   int threads) {
  Bands cut;
  const auto add = [&](int64_t image, int64_t images, int64_t first, int64_t rows) {
    Band band{image, images, first, rows, 0, 0};
    const BandShape shape = ShapeOf(window, x[1], y[1], images, first, rows, band.input_row);
    const auto found = std::find(cut.shapes.begin(), cut.shapes.end(), shape);
    band.shape = static_cast<size_t>(found - cut.shapes.begin());
    if (found == cut.shapes.end()) cut.shapes.push_back(shape);
    cut.bands.push_back(band);
  };
  if (per_image == 1) {
    const int64_t images = CeilDivide(y[0], std::clamp<int64_t>(y[0], 1, threads));
    for (int64_t image = 0; image < y[0]; image += images) {
      add(image, std::min(images, y[0] - image), 0, y[1]);
    }
    return cut;
  }
  const int64_t rows = CeilDivide(y[1], per_image);
  for (int64_t image = 0; image < y[0]; ++image) {
    for (int64_t first = 0; first < y[1]; first += rows) {
      add(image, 1, first, std::min(rows, y[1] - first));
    }
  }
  return cut;
}

Status ForBands(ThreadPool& pool, size_t count, FunctionRef<Status(size_t)> run) {
  if (count == 1) return run(0);
  Status failure;
  std::mutex mutex;
  pool.ParallelFor(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Status status = run(static_cast<size_t>(i));
      if (status.ok()) continue;
      std::lock_guard lock(mutex);
      failure = status;
    }
  });
  return failure;
}

}  // namespace onnxd::onednn
