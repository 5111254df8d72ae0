// A 2-D convolution cut into bands: whole images, or rows of one, each a primitive's call.
#pragma once

#include <vector>

#include "runtime/base/function_ref.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_pool.h"
#include "runtime/ops/convolution.h"
#include "runtime/tensor/shape.h"

namespace onnxd::onednn {

// What decides the primitive of a band.
struct BandShape {
  int64_t images, input_rows, rows, pad_top, pad_bottom;
  bool operator==(const BandShape&) const = default;
};

struct Band {
  int64_t image, images;    // from `image` on
  int64_t first_row, rows;  // of the result
  int64_t input_row;        // the first that is read
  size_t shape;             // in Bands::shapes

  // The elements of `x`, [batch, height, width, channels], before the first that the band reads.
  int64_t InputOffset(const Shape& x) const { return (image * x[1] + input_row) * x[2] * x[3]; }
  int64_t OutputOffset(const Shape& y) const { return (image * y[1] + first_row) * y[2] * y[3]; }
  int64_t OutputCount(const Shape& y) const { return images * rows * y[2] * y[3]; }
};

struct Bands {
  std::vector<BandShape> shapes;
  std::vector<Band> bands;
};

// kInvalidArgument for padding below 0, which passes leave to other kernels.
Status CheckPads(const Node& node, const Window& window);

// How many bands an image of `y` makes so that all threads have work that is worth it;
// `products` is the multiply-adds of one output element.
int64_t BandsPerImage(const Shape& y, int64_t products, int threads);

// x and y: [batch, height, width, channels].
Bands CutIntoBands(const Window& window, const Shape& x, const Shape& y, int64_t per_image,
                   int threads);

// Calls run(i) for all bands, side by side when there are several; the last failure, if any.
Status ForBands(ThreadPool& pool, size_t count, FunctionRef<Status(size_t)> run);

}  // namespace onnxd::onednn
