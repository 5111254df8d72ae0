// Images, regions of interest, and the rarer pools.
#include <algorithm>
#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/ops/convolution.h"
#include "runtime/ops/inference_rules.h"
#include "runtime/tensor/axes.h"

namespace onnxd {
namespace {

// [batch, channels] of X, the spatial dimensions of the grid.
Status GridSample(InferenceContext& context) {
  const SymbolicShape* x = context.shape(0);
  const SymbolicShape* grid = context.shape(1);
  if (x == nullptr || grid == nullptr) return Status::Ok();
  if (x->size() < 3 || grid->size() != x->size()) {
    return context.Fail(StrCat("X of shape ", ToString(*x), " and grid of shape ", ToString(*grid),
                               " do not match"));
  }
  const Dimension& coordinates = grid->back();
  if (coordinates.known() && coordinates.value != static_cast<int64_t>(x->size()) - 2) {
    return context.Fail("the grid has another number of coordinates than X has spatial axes");
  }
  SymbolicShape out = {(*x)[0], (*x)[1]};
  out.insert(out.end(), grid->begin() + 1, grid->end() - 1);
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status NonMaxSuppression(InferenceContext& context) {
  context.SetElement(0, DataType::kInt64);
  return Status::Ok();  // how many boxes are left, the data decide
}

// [regions, channels, height, width]
Status Regions(InferenceContext& context, int64_t height, int64_t width) {
  const SymbolicShape* x = context.shape(0);
  const SymbolicShape* rois = context.shape(1);
  if ((x != nullptr && x->size() != 4) || (rois != nullptr && rois->size() != 2)) {
    return context.Fail("X must have rank 4, rois rank 2");
  }
  if (height < 1 || width < 1) return context.Fail("the output size is not positive");
  const Dimension regions = rois != nullptr ? (*rois)[0] : Dimension::Unnamed();
  const Dimension channels = x != nullptr ? (*x)[1] : Dimension::Unnamed();
  context.SetShape(0, {regions, channels, height, width});
  return Status::Ok();
}

Status RoiAlign(InferenceContext& context) {
  return Regions(context, context.attributes().Int("output_height", 1),
                 context.attributes().Int("output_width", 1));
}

Status MaxRoiPool(InferenceContext& context) {
  const auto pooled = context.attributes().Ints("pooled_shape");
  if (pooled.size() != 2) return context.Fail("pooled_shape must have two entries");
  return Regions(context, pooled[0], pooled[1]);
}

Status DeformConv(InferenceContext& context) {
  const SymbolicShape* x = context.shape(0);
  const SymbolicShape* w = context.shape(1);
  const SymbolicShape* offset = context.shape(2);
  if (x == nullptr || w == nullptr || offset == nullptr) return Status::Ok();
  if (x->size() < 3 || w->size() != x->size() || offset->size() != x->size()) {
    return context.Fail("X, W and offset must have the same rank of at least 3");
  }
  SymbolicShape out = {(*x)[0], (*w)[0]};
  out.insert(out.end(), offset->begin() + 2, offset->end());
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status AffineGrid(InferenceContext& context) {
  const auto size = context.known_ints(1);
  if (!size) return Status::Ok();
  if (size->size() != 4 && size->size() != 5) return context.Fail("size must have 4 or 5 entries");
  SymbolicShape out = {(*size)[0]};
  out.insert(out.end(), size->begin() + 2, size->end());
  out.push_back(static_cast<int64_t>(size->size()) - 2);
  for (const Dimension& dimension : out) {
    if (dimension.value < 1) return context.Fail("a size is not positive");
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status Col2Im(InferenceContext& context) {
  const SymbolicShape* x = context.shape(0);
  const auto image = context.known_ints(1);
  const auto block = context.known_ints(2);
  if (x == nullptr || !image || !block) return Status::Ok();
  if (x->size() != 3 || image->size() != block->size() || image->empty()) {
    return context.Fail("input must have rank 3, image_shape and block_shape the same length");
  }
  int64_t taps = 1;
  for (const int64_t extent : *block) {
    if (extent < 1 || extent > (int64_t{1} << 20) || taps > (int64_t{1} << 40)) {
      return context.Fail("block_shape is out of range");
    }
    taps *= extent;
  }
  SymbolicShape out = {(*x)[0], Dimension()};
  if ((*x)[1].known()) out[1] = (*x)[1].value / taps;
  out.insert(out.end(), image->begin(), image->end());
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status CenterCropPad(InferenceContext& context) {
  const SymbolicShape* x = context.shape(0);
  const auto wanted = context.known_ints(1);
  if (x == nullptr || !wanted) return Status::Ok();
  std::vector<int64_t> axes = context.attributes().Ints("axes");
  if (axes.empty()) {
    for (size_t i = 0; i < x->size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  if (axes.size() != wanted->size()) return context.Fail("shape has the wrong length");
  SymbolicShape out = *x;
  ONNXD_ASSIGN_OR_RETURN(const auto normal, NormalizeAxes(axes, static_cast<int>(x->size())));
  for (size_t i = 0; i < axes.size(); ++i) {
    if ((*wanted)[i] < 0) return context.Fail("a wanted extent is negative");
    out[static_cast<size_t>(normal[i])] = (*wanted)[i];
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

// An experiment of early opsets: border is left, top, right, bottom; with scale, the window of that
// [height, width] whose corner is at left and top.
Status Crop(InferenceContext& context) {
  const SymbolicShape* x = context.shape(0);
  if (x == nullptr) return Status::Ok();
  const auto border = context.attributes().Ints("border");
  const auto scale = context.attributes().Ints("scale");
  if (x->size() != 4 || border.size() != 4 || (!scale.empty() && scale.size() != 2)) {
    return context.Fail("the input must have rank 4, border four entries, scale two or none");
  }
  SymbolicShape out = *x;
  for (size_t i = 0; i < 2; ++i) {
    Dimension& extent = out[i + 2];
    const int64_t begin = border[1 - i], end = border[3 - i];
    if (begin < 0 || end < 0) return context.Fail("border is negative");
    if (!extent.known()) continue;
    const int64_t kept = scale.empty() ? extent.value - begin - end : scale[i];
    if (kept < 1 || begin > extent.value - kept) return context.Fail("the window is outside");
    extent = kept;
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status MaxUnpool(InferenceContext& context) {
  const SymbolicShape* x = context.shape(0);
  if (x == nullptr) return Status::Ok();
  if (context.HasInput(2)) {
    if (const auto wanted = context.known_ints(2)) {
      context.SetShape(0, SymbolicShape(wanted->begin(), wanted->end()));
    }
    return Status::Ok();
  }
  const auto kernel = context.attributes().Ints("kernel_shape");
  const auto strides = context.attributes().Ints("strides");
  const auto pads = context.attributes().Ints("pads");
  const size_t axes = kernel.size();
  if (x->size() != axes + 2 || (!strides.empty() && strides.size() != axes) ||
      (!pads.empty() && pads.size() != 2 * axes)) {
    return context.Fail("kernel_shape, strides or pads do not fit the input's rank");
  }
  SymbolicShape out = {(*x)[0], (*x)[1]};
  for (size_t i = 0; i < axes; ++i) {
    const Dimension& in = (*x)[i + 2];
    Dimension extent;
    if (in.known()) {
      extent = (in.value - 1) * (strides.empty() ? 1 : strides[i]) + kernel[i] -
               (pads.empty() ? 0 : pads[i] + pads[axes + i]);
      if (extent.value < 1) return context.Fail("the output is empty");
    }
    out.push_back(extent);
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status ImageDecoder(InferenceContext& context) {
  context.SetElement(0, DataType::kUint8);
  return Status::Ok();
}

Status CropAndResize(InferenceContext& context) {
  const SymbolicShape* x = context.shape(0);
  const SymbolicShape* rois = context.shape(1);
  const auto size = context.known_ints(3);
  if (x == nullptr || rois == nullptr) return Status::Ok();
  if (x->size() != 4 || rois->size() != 2) return context.Fail("X needs rank 4 and rois rank 2");
  SymbolicShape out = {(*rois)[0], (*x)[1], Dimension(), Dimension()};
  if (size && size->size() == 2 && (*size)[0] > 0 && (*size)[1] > 0) {
    out[2] = (*size)[0];
    out[3] = (*size)[1];
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "AffineGrid", AffineGrid},
    {"", "CenterCropPad", CenterCropPad},
    {"", "Col2Im", Col2Im},
    {"", "Crop", Crop},
    {"", "DeformConv", DeformConv},
    {"", "GridSample", GridSample},
    {"", "ImageDecoder", ImageDecoder},
    {"", "MaxRoiPool", MaxRoiPool},
    {"", "MaxUnpool", MaxUnpool},
    {"", "NonMaxSuppression", NonMaxSuppression},
    {"", "RoiAlign", RoiAlign},
    {"com.microsoft", "CropAndResize", CropAndResize},
};

}  // namespace

std::span<const InferenceRule> VisionRules() { return kRules; }

}  // namespace onnxd
