// Conv, com.microsoft FusedConv and ConvTranspose without oneDNN: panels of output pixels are
// gathered straight into the packed layout of math::Simd::gemm (im2col without the column matrix);
// in double by plain loops.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/packed_matrix.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

// Spatial geometry padded to three axes (depth, height, width).
struct Geometry {
  std::array<int64_t, 3> input{1, 1, 1}, kernel{1, 1, 1}, output{1, 1, 1};
  std::array<int64_t, 3> strides{1, 1, 1}, dilations{1, 1, 1}, pads{0, 0, 0};
  int64_t batch = 0, group = 1, in_channels = 0, out_channels = 0;  // channels per group

  int64_t in_plane() const { return input[0] * input[1] * input[2]; }
  int64_t out_plane() const { return output[0] * output[1] * output[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

std::vector<int64_t> SpatialDims(const Shape& shape) {
  return std::vector<int64_t>(shape.begin() + 2, shape.end());
}

Result<Geometry> MakeGeometry(const PrepareContext& context, bool transposed) {
  const Shape& x = context.InputShape(0);
  const Shape& w = context.InputShape(1);
  if (x.rank() < 3 || x.rank() > 5) {
    return Unimplemented(StrCat(Describe(context.node), ": rank ", x.rank(), " is not supported"));
  }
  const auto window_of = transposed ? TransposedWindow : PoolWindow;
  ONNXD_ASSIGN_OR_RETURN(const Window window,
                         window_of(context.node, SpatialDims(x), SpatialDims(w)));
  Geometry g;
  g.group = context.node.attributes.Int("group", 1);
  g.batch = x[0];
  g.in_channels = x[1] / g.group;
  g.out_channels = transposed ? w[1] : w[0] / g.group;
  const size_t axes = window.kernel.size(), shift = 3 - axes;
  for (size_t i = 0; i < axes; ++i) {
    g.input[i + shift] = x[static_cast<int>(i) + 2];
    g.kernel[i + shift] = window.kernel[i];
    g.output[i + shift] = window.output[i];
    g.strides[i + shift] = window.strides[i];
    g.dilations[i + shift] = window.dilations[i];
    g.pads[i + shift] = window.pads_begin[i];
  }
  return g;
}

constexpr int64_t kMaxPanel = 64;

// Gathers the taps of `width` output pixels from `first` on: panel[(channel, tap)][pixel].
void GatherPanel(const Geometry& g, const float* x, int64_t first, int64_t width,
                 int64_t panel_width, float* panel) {
  std::array<std::array<int64_t, kMaxPanel>, 3> origin;
  for (int64_t j = 0; j < width; ++j) {
    int64_t pixel = first + j;
    for (size_t axis = 3; axis-- > 0;) {
      origin[axis][static_cast<size_t>(j)] =
          pixel % g.output[axis] * g.strides[axis] - g.pads[axis];
      pixel /= g.output[axis];
    }
  }
  const int64_t taps = g.taps(), plane = g.in_plane();
  std::array<int64_t, kMaxPanel> offset;
  int64_t tap = 0;
  for (int64_t d = 0; d < g.kernel[0]; ++d) {
    for (int64_t h = 0; h < g.kernel[1]; ++h) {
      for (int64_t w = 0; w < g.kernel[2]; ++w, ++tap) {
        bool inside_all = true;
        for (int64_t j = 0; j < width; ++j) {
          const auto at = static_cast<size_t>(j);
          const int64_t z = origin[0][at] + d * g.dilations[0];
          const int64_t y = origin[1][at] + h * g.dilations[1];
          const int64_t c = origin[2][at] + w * g.dilations[2];
          const bool inside =
              z >= 0 && z < g.input[0] && y >= 0 && y < g.input[1] && c >= 0 && c < g.input[2];
          offset[at] = inside ? (z * g.input[1] + y) * g.input[2] + c : -1;
          inside_all = inside_all && inside;
        }
        const bool run = inside_all &&
                         offset[static_cast<size_t>(width - 1)] - offset[0] == width - 1 &&
                         g.strides[2] == 1;
        for (int64_t channel = 0; channel < g.in_channels; ++channel) {
          float* to = panel + (channel * taps + tap) * panel_width;
          const float* from = x + channel * plane;
          if (run) {
            std::memcpy(to, from + offset[0], static_cast<size_t>(width) * sizeof(float));
          } else {
            for (int64_t j = 0; j < width; ++j) {
              const int64_t at = offset[static_cast<size_t>(j)];
              to[j] = at < 0 ? 0.0f : from[at];
            }
          }
          for (int64_t j = width; j < panel_width; ++j) to[j] = 0.0f;
        }
      }
    }
  }
}

// Adds to one output plane what one input plane gives through its taps.
template <typename T>
void AddPlane(const Geometry& g, const T* x, const T* weights, T* y) {
  for (int64_t oz = 0; oz < g.output[0]; ++oz) {
    for (int64_t oy = 0; oy < g.output[1]; ++oy) {
      T* row = y + (oz * g.output[1] + oy) * g.output[2];
      for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
        const int64_t iz = oz * g.strides[0] - g.pads[0] + kz * g.dilations[0];
        if (iz < 0 || iz >= g.input[0]) continue;
        for (int64_t ky = 0; ky < g.kernel[1]; ++ky) {
          const int64_t iy = oy * g.strides[1] - g.pads[1] + ky * g.dilations[1];
          if (iy < 0 || iy >= g.input[1]) continue;
          const T* in = x + (iz * g.input[1] + iy) * g.input[2];
          for (int64_t kx = 0; kx < g.kernel[2]; ++kx) {
            const T weight = weights[(kz * g.kernel[1] + ky) * g.kernel[2] + kx];
            const int64_t shift = kx * g.dilations[2] - g.pads[2], stride = g.strides[2];
            // Output columns whose input column shift + ox * stride lies inside.
            const int64_t begin = shift < 0 ? (-shift + stride - 1) / stride : 0;
            const int64_t last = g.input[2] - 1 - shift;
            const int64_t end = last < 0 ? 0 : std::min(g.output[2], last / stride + 1);
            for (int64_t ox = begin; ox < end; ++ox) row[ox] += weight * in[shift + ox * stride];
          }
        }
      }
    }
  }
}

Status CheckBias(const PrepareContext& context, const Geometry& g) {
  if (!context.HasInput(2) || context.InputShape(2).ElementCount() == g.out_channels * g.group) {
    return Status::Ok();
  }
  return InvalidArgument(
      StrCat(Describe(context.node), ": bias has shape ", context.InputShape(2).ToString()));
}

// The constant weights of each group, packed when a shape first asks for it.
class PackedFilters {
 public:
  explicit PackedFilters(Tensor weights) : weights_(std::move(weights)) {}

  Result<const std::vector<PackedMatrix>*> Get(int64_t group) {
    std::lock_guard lock(mutex_);
    if (!packed_.empty()) return &packed_;
    const int64_t filters = weights_.shape()[0] / group;
    const int64_t depth = weights_.ElementCount() / weights_.shape()[0];
    for (int64_t g = 0; g < group; ++g) {
      const float* own = weights_.data<float>() + g * filters * depth;
      auto matrix = PackMatrix(own, true, depth, filters);
      if (!matrix.ok()) {
        packed_.clear();
        return matrix.status();
      }
      packed_.push_back(std::move(*matrix));
    }
    return &packed_;
  }

 private:
  Tensor weights_;
  std::mutex mutex_;
  std::vector<PackedMatrix> packed_;
};

// Few pixels waste most of a panel: they become rows instead, and the filters are the packed side.
bool PrefersRows(const Geometry& g, int64_t panel_width) {
  const int64_t pixels = g.out_plane();
  const int64_t padded = (pixels + panel_width - 1) / panel_width * panel_width;
  return pixels <= kMaxPanel && g.out_channels >= 16 && padded * 3 > pixels * 4;
}

void RunRows(const Geometry& g, const math::Simd& simd, const PackedMatrix& filters, const float* x,
             const float* bias, float* y, float* scratch) {
  const int64_t pixels = g.out_plane(), depth = filters.k;
  float* taps = scratch;                   // [depth, pixels]
  float* rows = taps + pixels * depth;     // [pixels, depth]
  float* results = rows + pixels * depth;  // [pixels, channels]
  GatherPanel(g, x, 0, pixels, pixels, taps);
  if (pixels == 1) {
    simd.gemm({1, filters.n, depth, taps, depth, filters.data(), y, filters.n, bias});
    return;
  }
  TransposeMatrix(taps, depth, pixels, rows);
  simd.gemm({pixels, filters.n, depth, rows, depth, filters.data(), results, filters.n, bias});
  TransposeMatrix(results, pixels, filters.n, y);
}

class FloatConv : public Kernel {
 public:
  // `weights`: undefined where they are not constant.
  FloatConv(Activation activation, Tensor weights) : activation_(activation) {
    if (weights.defined()) filters_ = std::make_shared<PackedFilters>(std::move(weights));
  }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    ONNXD_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(context, false));
    ONNXD_RETURN_IF_ERROR(CheckBias(context, g));
    if (context.HasInput(3) && !(context.InputShape(3) == context.OutputShape(0))) {
      return InvalidArgument(
          StrCat(Describe(context.node), ": Z has shape ", context.InputShape(3).ToString()));
    }
    const math::Simd& simd = math::CurrentSimd();
    const int64_t depth = g.in_channels * g.taps();
    const int64_t panels = (g.out_plane() + simd.gemm_width - 1) / simd.gemm_width;
    const bool depthwise = g.in_channels == 1 && g.out_channels == 1;
    const bool has_bias = context.HasInput(2), has_sum = context.HasInput(3);
    const Activation activation = activation_;
    PreparedKernel prepared;
    // A panel buffer for each chunk that ParallelFor may run at once, found by its first panel.
    const int64_t panel_floats = depth * simd.gemm_width;
    const std::vector<PackedMatrix>* filters = nullptr;
    if (filters_ != nullptr && !depthwise && PrefersRows(g, simd.gemm_width)) {
      ONNXD_ASSIGN_OR_RETURN(filters, filters_->Get(g.group));
    }
    const int64_t row_floats = g.out_plane() * (2 * depth + g.out_channels);
    const int64_t floats = filters != nullptr ? row_floats : kMaxChunks * panel_floats;
    prepared.scratch_bytes = depthwise ? 0 : static_cast<size_t>(floats) * sizeof(float);
    prepared.compute = [=, &simd](const KernelContext& k) {
      if (g.batch * g.out_plane() == 0) return Status::Ok();
      const int64_t planes = g.batch * g.group;
      for (int64_t i = 0; i < planes; ++i) {
        const int64_t group = i % g.group;
        const float* x = k.input<float>(0) + i * g.in_channels * g.in_plane();
        const float* w = k.input<float>(1) + group * g.out_channels * depth;
        const float* bias = has_bias ? k.input<float>(2) + group * g.out_channels : nullptr;
        float* y = k.output<float>(0) + i * g.out_channels * g.out_plane();
        if (filters != nullptr) {
          RunRows(g, simd, (*filters)[static_cast<size_t>(group)], x, bias, y, k.scratch<float>());
        } else if (depthwise) {  // too thin for a matrix product
          std::fill_n(y, g.out_plane(), bias ? *bias : 0.0f);
          AddPlane(g, x, w, y);
        } else {
          RunPanels(g, simd, x, w, bias, y, k, panels, panel_floats);
        }
        const int64_t count = g.out_channels * g.out_plane();
        if (has_sum) {
          simd.binary(math::Binary::kAdd, y, k.input<float>(3) + i * count, y, count, 1, 1);
        }
        activation.Apply(y, count);
      }
      return Status::Ok();
    };
    return prepared;
  }

 private:
  static constexpr int64_t kMaxChunks = 16;

  static void RunPanels(const Geometry& g, const math::Simd& simd, const float* x, const float* w,
                        const float* bias, float* y, const KernelContext& k, int64_t panels,
                        int64_t panel_floats) {
    const int64_t depth = g.in_channels * g.taps();
    const int64_t chunks = std::min<int64_t>({kMaxChunks, panels, k.pool().threads()});
    k.pool().ParallelFor(chunks, 1, [&](int64_t first_chunk, int64_t last_chunk) {
      for (int64_t chunk = first_chunk; chunk < last_chunk; ++chunk) {
        float* panel = k.scratch<float>() + chunk * panel_floats;
        for (int64_t p = panels * chunk / chunks; p < panels * (chunk + 1) / chunks; ++p) {
          const int64_t first = p * simd.gemm_width;
          const int64_t width = std::min(simd.gemm_width, g.out_plane() - first);
          GatherPanel(g, x, first, width, simd.gemm_width, panel);
          simd.gemm({g.out_channels, width, depth, w, depth, panel, y + first, g.out_plane()});
          if (bias == nullptr) continue;
          for (int64_t c = 0; c < g.out_channels; ++c) {
            float* row = y + c * g.out_plane() + first;
            for (int64_t j = 0; j < width; ++j) row[j] += bias[c];
          }
        }
      }
    });
  }

  Activation activation_;
  std::shared_ptr<PackedFilters> filters_;
};

// Conv of doubles, by plain loops.
Result<PreparedKernel> PrepareDoubleConv(const PrepareContext& context) {
  ONNXD_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(context, false));
  ONNXD_RETURN_IF_ERROR(CheckBias(context, g));
  const bool has_bias = context.HasInput(2);
  PreparedKernel prepared;
  prepared.compute = [=](const KernelContext& k) {
    const int64_t channels = g.group * g.out_channels;
    for (int64_t i = 0; i < g.batch * channels; ++i) {
      const int64_t channel = i % channels, group = channel / g.out_channels;
      const double* x =
          k.input<double>(0) + (i / channels * g.group + group) * g.in_channels * g.in_plane();
      const double* w = k.input<double>(1) + channel * g.in_channels * g.taps();
      double* y = k.output<double>(0) + i * g.out_plane();
      std::fill_n(y, g.out_plane(), has_bias ? k.input<double>(2)[channel] : 0.0);
      for (int64_t c = 0; c < g.in_channels; ++c) {
        AddPlane(g, x + c * g.in_plane(), w + c * g.taps(), y);
      }
    }
    return Status::Ok();
  };
  return prepared;
}

// ConvTranspose: adds what the input pixels give through one tap to one output plane.
template <typename T>
void AddTap(const Geometry& g, int64_t tap, const T* column, T* y) {
  const int64_t kx = tap % g.kernel[2], ky = tap / g.kernel[2] % g.kernel[1];
  const int64_t kz = tap / (g.kernel[2] * g.kernel[1]);
  // Input columns whose output column shift + ix * stride lies inside.
  const int64_t shift = kx * g.dilations[2] - g.pads[2], stride = g.strides[2];
  const int64_t begin = shift < 0 ? (-shift + stride - 1) / stride : 0;
  const int64_t last = g.output[2] - 1 - shift;
  const int64_t end = last < 0 ? 0 : std::min(g.input[2], last / stride + 1);
  for (int64_t iz = 0; iz < g.input[0]; ++iz) {
    const int64_t oz = iz * g.strides[0] + kz * g.dilations[0] - g.pads[0];
    if (oz < 0 || oz >= g.output[0]) continue;
    for (int64_t iy = 0; iy < g.input[1]; ++iy) {
      const int64_t oy = iy * g.strides[1] + ky * g.dilations[1] - g.pads[1];
      if (oy < 0 || oy >= g.output[1]) continue;
      const T* from = column + (iz * g.input[1] + iy) * g.input[2];
      T* to = y + (oz * g.output[1] + oy) * g.output[2] + shift;
      for (int64_t ix = begin; ix < end; ++ix) to[ix * stride] += from[ix];
    }
  }
}

// ConvTranspose of doubles, by plain loops.
Result<PreparedKernel> PrepareDoubleConvTranspose(const PrepareContext& context) {
  ONNXD_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(context, true));
  ONNXD_RETURN_IF_ERROR(CheckBias(context, g));
  const bool has_bias = context.HasInput(2);
  PreparedKernel prepared;
  prepared.scratch_bytes = static_cast<size_t>(g.in_plane()) * sizeof(double);
  prepared.compute = [=](const KernelContext& k) {
    const int64_t channels = g.group * g.out_channels, pixels = g.in_plane();
    double* column = k.scratch<double>();
    for (int64_t i = 0; i < g.batch * channels; ++i) {
      const int64_t channel = i % channels, group = channel / g.out_channels;
      const double* x =
          k.input<double>(0) + (i / channels * g.group + group) * g.in_channels * pixels;
      const double* w =
          k.input<double>(1) +
          (group * g.in_channels * g.out_channels + channel % g.out_channels) * g.taps();
      double* y = k.output<double>(0) + i * g.out_plane();
      std::fill_n(y, g.out_plane(), has_bias ? k.input<double>(2)[channel] : 0.0);
      for (int64_t tap = 0; tap < g.taps(); ++tap) {
        std::fill_n(column, pixels, 0.0);
        for (int64_t c = 0; c < g.in_channels; ++c) {
          const double weight = w[c * g.out_channels * g.taps() + tap];
          for (int64_t p = 0; p < pixels; ++p) column[p] += weight * x[c * pixels + p];
        }
        AddTap(g, tap, column, y);
      }
    }
    return Status::Ok();
  };
  return prepared;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeConv(const KernelInfo& info) {
  if (info.InputType(0) == DataType::kDouble && info.node.Is("Conv")) {
    return MakeKernel(PrepareDoubleConv);
  }
  if (info.InputType(0) != DataType::kFloat) return DeclineType("Conv", info.InputType(0));
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  Tensor weights;
  if (const Initializer* constant = info.constant_input(1)) {
    ONNXD_ASSIGN_OR_RETURN(weights, constant->Materialize());
  }
  return std::unique_ptr<Kernel>(std::make_unique<FloatConv>(activation, std::move(weights)));
}

// ConvTranspose: columns = W^T * X by one product a group, then added where they belong.
Result<std::unique_ptr<Kernel>> MakeConvTranspose(const KernelInfo& info) {
  if (info.InputType(0) == DataType::kDouble) return MakeKernel(PrepareDoubleConvTranspose);
  if (info.InputType(0) != DataType::kFloat) return DeclineType("ConvTranspose", info.InputType(0));
  return MakeKernel([](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(context, true));
    ONNXD_RETURN_IF_ERROR(CheckBias(context, g));
    const math::Simd& simd = math::CurrentSimd();
    const int64_t rows = g.out_channels * g.taps(), pixels = g.in_plane();
    const int64_t packed = math::PackedBSize(simd, g.in_channels, pixels);
    const int64_t transposed = rows * g.in_channels;
    const bool has_bias = context.HasInput(2);
    PreparedKernel prepared;
    prepared.scratch_bytes =
        static_cast<size_t>(packed + transposed + rows * pixels) * sizeof(float) + 64;
    prepared.compute = [=, &simd](const KernelContext& k) {
      float* packed_x = k.scratch<float>();
      float* columns = packed_x + packed;
      float* weights = columns + rows * pixels;
      for (int64_t i = 0; i < g.batch * g.group; ++i) {
        const int64_t group = i % g.group;
        const float* w = k.input<float>(1) + group * transposed;
        for (int64_t c = 0; c < g.in_channels; ++c) {
          for (int64_t r = 0; r < rows; ++r) weights[r * g.in_channels + c] = w[c * rows + r];
        }
        simd.pack_b(k.input<float>(0) + i * g.in_channels * pixels, pixels, false, g.in_channels,
                    pixels, packed_x);
        simd.gemm({rows, pixels, g.in_channels, weights, g.in_channels, packed_x, columns, pixels});
        for (int64_t c = 0; c < g.out_channels; ++c) {
          float* y = k.output<float>(0) + (i * g.out_channels + c) * g.out_plane();
          std::fill_n(y, g.out_plane(),
                      has_bias ? k.input<float>(2)[group * g.out_channels + c] : 0);
          const float* column = columns + c * g.taps() * pixels;
          for (int64_t tap = 0; tap < g.taps(); ++tap) AddTap(g, tap, column + tap * pixels, y);
        }
      }
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
