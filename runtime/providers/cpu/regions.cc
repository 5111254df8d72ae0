// NonMaxSuppression-10, -11, RoiAlign-10 to -22, MaxRoiPool-1, -22; com.microsoft's CropAndResize.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "runtime/math/simd.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/sampling.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

using math::Box;

Box BoxAt(const float* boxes, int64_t index, bool centered) {
  const float* b = boxes + index * 4;
  if (centered) {  // x center, y center, width, height
    return {b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2};
  }
  return {std::min(b[0], b[2]), std::min(b[1], b[3]), std::max(b[0], b[2]), std::max(b[1], b[3])};
}

// The boxes that stay, in columns.
class KeptBoxes {
 public:
  int64_t size() const { return static_cast<int64_t>(y1_.size()); }

  void Add(const Box& box) {
    y1_.push_back(box.y1);
    x1_.push_back(box.x1);
    y2_.push_back(box.y2);
    x2_.push_back(box.x2);
    areas_.push_back((box.y2 - box.y1) * (box.x2 - box.x1));
  }

  // Whether one of them covers more than `threshold` of it and itself.
  bool Hide(const Box& box, float threshold) const {
    return math::CurrentSimd().any_overlap(
        {y1_.data(), x1_.data(), y2_.data(), x2_.data(), areas_.data()}, size(), box, threshold);
  }

 private:
  std::vector<float> y1_, x1_, y2_, x2_, areas_;
};

template <typename T>
T OneOr(const Tensor* tensor, T fallback) {
  if (tensor == nullptr || tensor->ElementCount() < 1) return fallback;
  return ElementsAs<T>(*tensor)[0];
}

Result<Values> NonMaxSuppression(const Node& node, std::span<const Value> inputs) {
  const Tensor& boxes = inputs[0].tensor();
  const Tensor& scores = inputs[1].tensor();
  const Shape& bs = boxes.shape();
  const Shape& ss = scores.shape();
  if (bs.rank() != 3 || ss.rank() != 3 || bs[2] != 4 || bs[0] != ss[0] || bs[1] != ss[2]) {
    return InvalidArgument(StrCat(Describe(node), ": boxes of shape ", bs.ToString(),
                                  " and scores of shape ", ss.ToString(), " do not match"));
  }
  const auto most = OneOr<int64_t>(TensorAt(inputs, 2), 0);
  const auto threshold = OneOr<float>(TensorAt(inputs, 3), 0);
  const Tensor* lowest = TensorAt(inputs, 4);
  const auto score_threshold = OneOr<float>(lowest, 0);
  const bool centered = node.attributes.Int("center_point_box", 0) != 0;
  std::vector<int64_t> out;
  for (int64_t b = 0; b < bs[0]; ++b) {
    const float* own_boxes = boxes.data<float>() + b * bs[1] * 4;
    for (int64_t c = 0; c < ss[1]; ++c) {
      const float* own = scores.data<float>() + (b * ss[1] + c) * bs[1];
      std::vector<int64_t> order;
      for (int64_t i = 0; i < bs[1]; ++i) {
        if (lowest == nullptr || own[i] > score_threshold) order.push_back(i);
      }
      std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
        return own[x] > own[y] || (std::isnan(own[y]) && !std::isnan(own[x]));
      });
      KeptBoxes kept;
      for (const int64_t i : order) {
        if (kept.size() >= most) break;
        const Box box = BoxAt(own_boxes, i, centered);
        if (kept.Hide(box, threshold)) continue;
        kept.Add(box);
        out.insert(out.end(), {b, c, i});
      }
    }
  }
  return OneValue(
      TensorFrom(DataType::kInt64, Shape{static_cast<int64_t>(out.size()) / 3, 3}, out));
}

// RoiAlign's own bilinear rule: points up to one pixel outside read the border.
struct Sample {
  std::array<int64_t, 4> at;
  std::array<double, 4> weights;
};

Sample SampleAt(double y, double x, int64_t height, int64_t width) {
  if (!(y >= -1.0 && y <= static_cast<double>(height) && x >= -1.0 &&
        x <= static_cast<double>(width))) {
    return {{0, 0, 0, 0}, {0, 0, 0, 0}};
  }
  y = std::max(y, 0.0);
  x = std::max(x, 0.0);
  auto y0 = static_cast<int64_t>(y), x0 = static_cast<int64_t>(x);
  int64_t y1 = y0 + 1, x1 = x0 + 1;
  if (y0 >= height - 1) y0 = y1 = height - 1, y = static_cast<double>(y0);
  if (x0 >= width - 1) x0 = x1 = width - 1, x = static_cast<double>(x0);
  const double ly = y - static_cast<double>(y0), lx = x - static_cast<double>(x0);
  return {{y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1},
          {(1 - ly) * (1 - lx), (1 - ly) * lx, ly * (1 - lx), ly * lx}};
}

// The largest weighted corner of all samples; 0 where there is none.
template <typename T>
double LargestPart(const std::vector<Sample>& grid, const T* plane) {
  double largest = grid.empty() ? 0 : -std::numeric_limits<double>::infinity();
  for (const Sample& s : grid) {
    for (size_t i = 0; i < 4; ++i) {
      largest = std::max(largest, s.weights[i] * static_cast<double>(plane[s.at[i]]));
    }
  }
  return largest;
}

constexpr int64_t kMaxSamples = 1 << 12;

template <typename T>
Result<Values> RoiAlign(const Node& node, std::span<const Value> inputs) {
  const Attributes& a = node.attributes;
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  const std::vector<double> rois = ElementsAs<double>(inputs[1].tensor());
  const auto batches = ElementsAs<int64_t>(inputs[2].tensor());
  const int64_t oh = a.Int("output_height", 1), ow = a.Int("output_width", 1);
  const int64_t ratio = a.Int("sampling_ratio", 0);
  const double scale = a.Float("spatial_scale", 1);
  const bool largest = a.String("mode", "avg") == "max";
  const std::string fallback = node.since_version < 16 ? "output_half_pixel" : "half_pixel";
  const double offset =
      a.String("coordinate_transformation_mode", fallback) == "half_pixel" ? 0.5 : 0.0;
  const auto count = static_cast<int64_t>(batches.size());
  if (shape.rank() != 4 || static_cast<int64_t>(rois.size()) != count * 4 || oh < 1 || ow < 1 ||
      ratio > kMaxSamples || (shape.ElementCount() == 0 && count > 0)) {
    return InvalidArgument(StrCat(Describe(node), ": X of shape ", shape.ToString(),
                                  ", rois or batch_indices do not fit"));
  }
  const int64_t channels = shape[1], height = shape[2], width = shape[3];
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), Shape{count, channels, oh, ow}));
  T* to = out.mutable_data<T>();
  WeightedPoints<T> means;
  std::map<int64_t, SampledImage<T>> images;  // by batch index
  std::vector<std::vector<Sample>> grids;
  for (int64_t r = 0; r < count; ++r) {
    const int64_t batch = batches[static_cast<size_t>(r)];
    if (batch < 0 || batch >= shape[0]) {
      return InvalidArgument(
          StrCat(Describe(node), ": batch index ", batch, " is outside ", shape[0]));
    }
    const double* roi = rois.data() + r * 4;
    const double left = roi[0] * scale - offset, top = roi[1] * scale - offset;
    double roi_width = roi[2] * scale - offset - left, roi_height = roi[3] * scale - offset - top;
    if (offset == 0) {
      roi_width = std::max(roi_width, 1.0);
      roi_height = std::max(roi_height, 1.0);
    }
    const double bin_h = roi_height / static_cast<double>(oh);
    const double bin_w = roi_width / static_cast<double>(ow);
    const auto samples = [&](double bin) {
      if (ratio > 0) return ratio;
      const double wanted = std::ceil(bin);
      return wanted >= 1 && wanted <= static_cast<double>(kMaxSamples)
                 ? static_cast<int64_t>(wanted)
                 : int64_t{0};
    };
    const int64_t sh = samples(bin_h), sw = samples(bin_w);
    means.Clear();
    grids.resize(largest ? static_cast<size_t>(oh * ow) : 0);
    for (int64_t bin = 0; bin < oh * ow; ++bin) {
      const auto place = [](double begin, double extent, int64_t i, int64_t sample, int64_t of) {
        return begin + (static_cast<double>(i) +
                        (static_cast<double>(sample) + 0.5) / static_cast<double>(of)) *
                           extent;
      };
      if (largest) grids[static_cast<size_t>(bin)].clear();
      for (int64_t i = 0; i < sh * sw; ++i) {
        const Sample sample = SampleAt(place(top, bin_h, bin / ow, i / sw, sh),
                                       place(left, bin_w, bin % ow, i % sw, sw), height, width);
        if (largest) {
          grids[static_cast<size_t>(bin)].push_back(sample);
          continue;
        }
        for (size_t j = 0; j < 4; ++j) {
          means.AddTap(sample.at[j], sample.weights[j] / static_cast<double>(sh * sw));
        }
      }
      means.EndPoint();
    }
    const int64_t plane_size = height * width;
    const T* planes = x.data<T>() + batch * channels * plane_size;
    if (!largest) {
      images.try_emplace(batch, planes, channels, plane_size, count * oh * ow / shape[0])
          .first->second.Sample(means, to, oh * ow);
      to += channels * oh * ow;
      continue;
    }
    for (int64_t c = 0; c < channels; ++c, to += oh * ow) {
      const T* plane = planes + c * plane_size;
      for (size_t bin = 0; bin < grids.size(); ++bin) {
        to[bin] = static_cast<T>(LargestPart(grids[bin], plane));
      }
    }
  }
  return Values{std::move(out)};
}

template <typename T>
Result<Values> MaxRoiPool(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  const Shape& roi_shape = inputs[1].tensor().shape();
  const auto pooled = node.attributes.Ints("pooled_shape");
  const double scale = node.attributes.Float("spatial_scale", 1);
  if (shape.rank() != 4 || roi_shape.rank() != 2 || roi_shape[1] != 5 || pooled.size() != 2 ||
      pooled[0] < 1 || pooled[1] < 1) {
    return InvalidArgument(StrCat(Describe(node), ": X of shape ", shape.ToString(),
                                  " and rois of shape ", roi_shape.ToString(), " do not fit"));
  }
  const std::vector<double> rois = ElementsAs<double>(inputs[1].tensor());
  const int64_t channels = shape[1], height = shape[2], width = shape[3];
  ONNXD_ASSIGN_OR_RETURN(
      Tensor out, Tensor::Create(x.type(), Shape{roi_shape[0], channels, pooled[0], pooled[1]}));
  T* to = out.mutable_data<T>();
  for (int64_t r = 0; r < roi_shape[0]; ++r) {
    const double* roi = rois.data() + r * 5;
    const auto batch = Truncated<int64_t>(roi[0]);
    if (!(roi[0] >= 0) || batch >= shape[0]) {
      return InvalidArgument(StrCat(Describe(node), ": batch index ", roi[0]));
    }
    const auto limit = [](double v) { return std::clamp(v, -1e9, 1e9); };
    const double left = std::round(limit(roi[1] * scale)), top = std::round(limit(roi[2] * scale));
    const double w = std::max(std::round(limit(roi[3] * scale)) - left + 1, 1.0);
    const double h = std::max(std::round(limit(roi[4] * scale)) - top + 1, 1.0);
    const auto bin = [](double begin, double extent, int64_t i, int64_t n, int64_t bound) {
      const double size = extent / static_cast<double>(n);
      const double from = std::floor(static_cast<double>(i) * size) + begin;
      const double until = std::ceil(static_cast<double>(i + 1) * size) + begin;
      const auto last = static_cast<double>(bound);
      return std::pair(Truncated<int64_t>(std::clamp(from, 0.0, last)),
                       Truncated<int64_t>(std::clamp(until, 0.0, last)));
    };
    for (int64_t c = 0; c < channels; ++c) {
      const T* plane = x.data<T>() + (batch * channels + c) * height * width;
      for (int64_t py = 0; py < pooled[0]; ++py) {
        const auto rows = bin(top, h, py, pooled[0], height);
        for (int64_t px = 0; px < pooled[1]; ++px) {
          const auto columns = bin(left, w, px, pooled[1], width);
          const bool empty = rows.first >= rows.second || columns.first >= columns.second;
          T best = empty ? T(0) : std::numeric_limits<T>::lowest();
          for (int64_t y = rows.first; y < rows.second; ++y) {
            for (int64_t z = columns.first; z < columns.second; ++z) {
              best = std::max(best, plane[y * width + z]);
            }
          }
          *to++ = best;
        }
      }
    }
  }
  return Values{std::move(out)};
}

// Bilinear value of plane[height, width] at (y, x); pixels outside count as zero.
template <typename T>
double BilinearWithZeros(const T* plane, int64_t height, int64_t width, double y, double x) {
  if (!(y > -1 && y < static_cast<double>(height) && x > -1 && x < static_cast<double>(width))) {
    return 0;
  }
  const auto y0 = static_cast<int64_t>(std::floor(y)), x0 = static_cast<int64_t>(std::floor(x));
  const double wy = y - static_cast<double>(y0), wx = x - static_cast<double>(x0);
  const auto pixel = [&](int64_t row, int64_t column) {
    const bool inside = row >= 0 && row < height && column >= 0 && column < width;
    return inside ? static_cast<double>(plane[row * width + column]) : 0.0;
  };
  return (1 - wy) * ((1 - wx) * pixel(y0, x0) + wx * pixel(y0, x0 + 1)) +
         wy * ((1 - wx) * pixel(y0 + 1, x0) + wx * pixel(y0 + 1, x0 + 1));
}

// Where pixel i of `out` lies between two corners of an axis of `in` pixels.
double CropPosition(double begin, double end, int64_t in, int64_t i, int64_t out) {
  const auto last = static_cast<double>(in - 1);
  if (out == 1) return 0.5 * (begin + end) * last;
  return begin * last +
         static_cast<double>(i) * (end - begin) * last / static_cast<double>(out - 1);
}

// X [batch, channels, height, width], rois [count, (y1, x1, y2, x2)] from 0 to 1, batch_indices
// [count], crop_size (height, width).
template <typename T>
Result<Values> CropAndResize(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  const Shape& roi_shape = inputs[1].tensor().shape();
  const auto batches = ElementsAs<int64_t>(inputs[2].tensor());
  const auto size = ElementsAs<int64_t>(inputs[3].tensor());
  const std::string mode = node.attributes.String("mode", "bilinear");
  const bool fits = shape.rank() == 4 && roi_shape.rank() == 2 && roi_shape[1] == 4 &&
                    static_cast<int64_t>(batches.size()) == roi_shape[0] && size.size() == 2 &&
                    size[0] > 0 && size[1] > 0 && (mode == "bilinear" || mode == "nearest");
  if (!fits) {
    return InvalidArgument(StrCat(Describe(node), ": X ", shape.ToString(), ", rois ",
                                  roi_shape.ToString(), ", batch_indices, crop_size or mode '",
                                  mode, "' do not fit"));
  }
  const std::vector<double> rois = ElementsAs<double>(inputs[1].tensor());
  const auto outside = static_cast<T>(node.attributes.Float("extrapolation_value", 0));
  const int64_t channels = shape[1], height = shape[2], width = shape[3];
  ONNXD_ASSIGN_OR_RETURN(Tensor out,
                         Tensor::Create(x.type(), Shape{roi_shape[0], channels, size[0], size[1]}));
  T* to = out.mutable_data<T>();
  for (int64_t r = 0; r < roi_shape[0]; ++r) {
    const double* roi = rois.data() + r * 4;
    const int64_t batch = batches[static_cast<size_t>(r)];
    if (batch < 0 || batch >= shape[0]) {
      return InvalidArgument(StrCat(Describe(node), ": batch index ", batch));
    }
    for (int64_t c = 0; c < channels; ++c) {
      const T* plane = x.data<T>() + (batch * channels + c) * height * width;
      for (int64_t i = 0; i < size[0] * size[1]; ++i) {
        const double y = CropPosition(roi[0], roi[2], height, i / size[1], size[0]);
        const double z = CropPosition(roi[1], roi[3], width, i % size[1], size[1]);
        const bool inside = y >= 0 && y <= static_cast<double>(height - 1) && z >= 0 &&
                            z <= static_cast<double>(width - 1);
        if (!inside) {
          *to++ = outside;
        } else if (mode == "nearest") {
          *to++ = plane[static_cast<int64_t>(std::round(y)) * width +
                        static_cast<int64_t>(std::round(z))];
        } else {
          *to++ = static_cast<T>(BilinearWithZeros(plane, height, width, y, z));
        }
      }
    }
  }
  return Values{std::move(out)};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeNonMaxSuppression(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType("NonMaxSuppression", info.InputType(0));
  }
  return MakeEagerKernel(NonMaxSuppression);
}

Result<std::unique_ptr<Kernel>> MakeRoiAlign(const KernelInfo& info) {
  if (info.InputType(0) == DataType::kDouble) return MakeEagerKernel(RoiAlign<double>);
  if (info.InputType(0) == DataType::kFloat) return MakeEagerKernel(RoiAlign<float>);
  return DeclineType("RoiAlign", info.InputType(0));
}

Result<std::unique_ptr<Kernel>> MakeCropAndResize(const KernelInfo& info) {
  if (info.InputType(0) == DataType::kDouble) return MakeEagerKernel(CropAndResize<double>);
  if (info.InputType(0) == DataType::kFloat) return MakeEagerKernel(CropAndResize<float>);
  return DeclineType("CropAndResize", info.InputType(0));
}

Result<std::unique_ptr<Kernel>> MakeMaxRoiPool(const KernelInfo& info) {
  if (info.InputType(0) == DataType::kDouble) return MakeEagerKernel(MaxRoiPool<double>);
  if (info.InputType(0) == DataType::kFloat) return MakeEagerKernel(MaxRoiPool<float>);
  return DeclineType("MaxRoiPool", info.InputType(0));
}

}  // namespace onnxd
