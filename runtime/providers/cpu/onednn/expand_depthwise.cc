// onnxd::ExpandDepthwise: a 1 x 1 convolution whose result goes into a depthwise one, both
// [batch, height, width, channels], as mobile networks have them. onnxd::PlanarDepthwise: the same
// with a PlanarConv as the first. Computed for some channels at a time, in bands of rows, so that
// what the first makes is in the first-level cache when the second reads it; nothing of it is
// stored. Where a 1 x 1 convolution and a sum follow, as they do in MobileNetV2, they are computed
// from a band as well. The mean over an image's pixels, which squeeze-and-excite asks for, is a
// second output.
#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/depthwise.h"
#include "runtime/providers/cpu/onednn/conv_bands.h"
#include "runtime/providers/cpu/onednn/planar_windows.h"
#include "runtime/providers/cpu/packed_columns.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr size_t kX = 0, kExpandWeights = 1, kExpandBias = 2, kWeights = 3, kBias = 4;
constexpr size_t kProjectWeights = 5, kProjectBias = 6, kZ = 7;
// What a band of some channels of the expanded image may take.
constexpr int64_t kBandBytes = 32 << 10;

// Channels that are computed together, and their part of the packed weights.
struct Slice {
  int64_t channel, count;
  int64_t panel;
  int64_t repeated;  // channels that the slice before it has, too
};

// Slices are as wide as a panel of the GEMM. The last one has whole registers and ends with the
// last channel, so that some channels may be in two slices.
std::vector<Slice> SlicesOf(int64_t channels, const math::Simd& simd) {
  const int64_t width = simd.gemm_width, lanes = width / 2;
  std::vector<Slice> slices;
  for (int64_t channel = 0; channel < channels; channel += width) {
    const int64_t whole = (std::min(width, channels - channel) + lanes - 1) / lanes * lanes;
    const int64_t count = std::min(whole, channels);
    const int64_t first = std::min(channel, channels - count);
    slices.push_back({first, count, channel / width, channel - first});
  }
  return slices;
}

// Rows [begin, end) of the result of one image, made by one thread.
struct Strip {
  int64_t image, begin, end;
};

struct ExpandPlan {
  Shape x, y;
  Shape expanded;                               // [batch, height, width, channels]
  std::optional<onednn::PlanarWindows> planes;  // what PlanarDepthwise reads
  Window window;
  int64_t band, slots;  // rows of the result at a time; of the expanded image that are kept
  std::vector<Strip> strips;
  std::vector<Slice> slices;
  // Scratch of a strip: slots of a slice; where the planes' reader begins, and what a projection
  // reads, [band, width, channels], or the sums of channels; all of it.
  int64_t slot_floats, planes_at, band_at, strip_floats;
  bool wants_means;

  int64_t width() const { return window.output[1]; }
};

// Rows [begin, end) of the result, and those [first, last) of the expanded image that are made for
// them; the ones before are there.
struct BandRows {
  int64_t begin, end, first, last;
};

// Rows of the expanded image that rows [begin, end) of the result read.
std::pair<int64_t, int64_t> RowsBelow(const ExpandPlan& plan, int64_t begin, int64_t end) {
  const Window& window = plan.window;
  const int64_t top = begin * window.strides[0] - window.pads_begin[0];
  const int64_t bottom = top + (end - begin - 1) * window.strides[0] + window.kernel[0];
  const int64_t from = std::clamp<int64_t>(top, 0, plan.expanded[1]);
  return {from, std::clamp<int64_t>(bottom, from, plan.expanded[1])};
}

void CutIntoStrips(int threads, ExpandPlan* plan) {
  const Shape& y = plan->y;
  const Window& window = plan->window;
  const int64_t row_bytes =
      plan->expanded[2] * plan->slices.front().count * static_cast<int64_t>(sizeof(float));
  const int64_t overlap = std::max<int64_t>(0, window.kernel[0] - window.strides[0]);
  const int64_t fit = kBandBytes / std::max<int64_t>(1, row_bytes) - overlap;
  plan->band = std::clamp<int64_t>(fit / window.strides[0], 1, y[1]);
  plan->slots =
      std::min(plan->expanded[1], (plan->band - 1) * window.strides[0] + window.kernel[0]);
  const int64_t per_image = std::clamp<int64_t>((threads + y[0] - 1) / y[0], 1, y[1]);
  const int64_t rows = (y[1] + per_image - 1) / per_image;
  for (int64_t image = 0; image < y[0]; ++image) {
    for (int64_t first = 0; first < y[1]; first += rows) {
      plan->strips.push_back({image, first, std::min(y[1], first + rows)});
    }
  }
}

// The bands of a strip, in turns.
class BandsOfStrip {
 public:
  BandsOfStrip(const ExpandPlan& plan, const Strip& strip)
      : plan_(plan), end_(strip.end), next_(strip.begin) {}

  // nullopt at the end.
  std::optional<BandRows> Next() {
    if (next_ >= end_) return std::nullopt;
    const int64_t begin = next_;
    next_ = std::min(end_, begin + plan_.band);
    const auto [from, to] = RowsBelow(plan_, begin, next_);
    const BandRows rows{begin, next_, std::max(from, expanded_), to};
    expanded_ = std::max(expanded_, to);
    return rows;
  }

 private:
  const ExpandPlan& plan_;
  int64_t end_, next_;
  int64_t expanded_ = 0;  // rows before it are there, or no longer
};

// The first weights, [channels, in, height, width], and those of a projection, which there need not
// be, packed for the GEMM.
struct ExpandWeights {
  Shape expand_shape;
  Tensor expand;
  ColumnCut projected{};  // of no columns where there is no projection
  Tensor project;
};

class ExpandDepthwise : public Kernel {
 public:
  ExpandDepthwise(const Activation& expand_activation, ExpandWeights weights,
                  DepthwiseConv depthwise, const math::Simd& simd)
      : expand_activation_(BoundsOf(expand_activation)),
        weights_(std::move(weights)),
        depth_(weights_.expand_shape.ElementCount() / weights_.expand_shape[0]),
        depthwise_(std::move(depthwise)),
        simd_(simd) {}

  bool ReadsInput(size_t i) const override {
    return i != kExpandWeights && i != kWeights && i != kProjectWeights;
  }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(kX), &y = context.OutputShape(0);
    ONNXD_RETURN_IF_ERROR(CheckShapes(context));
    PreparedKernel prepared;
    if (y.ElementCount() == 0) {
      const int64_t means = context.HasOutput(1) ? context.OutputShape(1).ElementCount() : 0;
      prepared.compute = [means](const KernelContext& k) {
        if (means > 0) std::fill_n(k.output<float>(1), means, std::nanf(""));
        return Status::Ok();
      };
      return prepared;
    }
    auto plan = std::make_shared<ExpandPlan>();
    plan->x = x;
    plan->y = y;
    plan->slices = SlicesOf(depthwise_.channels(), simd_);
    plan->expanded = Shape{x[0], x[1], x[2], depthwise_.channels()};
    if (IsPlanar(context.node)) ONNXD_RETURN_IF_ERROR(PlanPlanes(context.node, plan.get()));
    ONNXD_ASSIGN_OR_RETURN(
        plan->window,
        PoolWindow(context.node, {plan->expanded[1], plan->expanded[2]}, depthwise_.window()));
    ONNXD_RETURN_IF_ERROR(onednn::CheckPads(context.node, plan->window));
    plan->wants_means = context.HasOutput(1);
    CutIntoStrips(context.threads, plan.get());
    PlanScratch(plan.get());
    const auto strips = static_cast<int64_t>(plan->strips.size());
    prepared.scratch_bytes = static_cast<size_t>(strips * plan->strip_floats) * sizeof(float);
    if (context.HasInput(kZ)) prepared.in_place = {{0, kZ}};
    prepared.compute = [plan, strips, this](const KernelContext& k) {
      k.pool().ParallelFor(strips, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          RunStrip(*plan, plan->strips[static_cast<size_t>(i)], k,
                   k.scratch<float>() + i * plan->strip_floats);
        }
      });
      if (plan->wants_means) WriteMeans(*plan, k);
      return Status::Ok();
    };
    return prepared;
  }

  static bool IsPlanar(const Node& node) { return node.Is("PlanarDepthwise", "onnxd"); }

 private:
  bool projects() const { return weights_.projected.n > 0; }

  Status CheckShapes(const PrepareContext& context) const {
    const Shape &x = context.InputShape(kX), &y = context.OutputShape(0);
    const int64_t channels = depthwise_.channels(),
                  out = projects() ? weights_.projected.n : channels;
    if (x[IsPlanar(context.node) ? 1 : 3] != weights_.expand_shape[1] || y[3] != out) {
      return InvalidArgument(StrCat(Describe(context.node), ": X of shape ", x.ToString(),
                                    " and weights do not fit together"));
    }
    for (const size_t i : {kExpandBias, kBias, kProjectBias}) {
      if (!context.HasInput(i)) continue;
      if (context.InputShape(i).ElementCount() == (i == kProjectBias ? out : channels)) continue;
      return InvalidArgument(
          StrCat(Describe(context.node), ": bias has shape ", context.InputShape(i).ToString()));
    }
    if (context.HasInput(kZ) && !(context.InputShape(kZ) == y)) {
      return InvalidArgument(
          StrCat(Describe(context.node), ": Z has shape ", context.InputShape(kZ).ToString()));
    }
    return Status::Ok();
  }

  Status PlanPlanes(const Node& node, ExpandPlan* plan) const {
    const Shape &x = plan->x, &w = weights_.expand_shape;
    plan->planes = onednn::PlanarWindows{{}, x[1], x[2], x[3]};
    Window& window = plan->planes->window;
    ONNXD_ASSIGN_OR_RETURN(window, PoolWindow(ExpandNodeOf(node), {x[2], x[3]}, {w[2], w[3]}));
    plan->expanded = Shape{x[0], window.output[0], window.output[1], depthwise_.channels()};
    return onednn::CheckPads(node, window);
  }

  void PlanScratch(ExpandPlan* plan) const {
    const auto whole_lines = [](int64_t floats) { return (floats + 15) / 16 * 16; };
    plan->slot_floats = whole_lines(plan->slots * plan->expanded[2] * plan->slices.front().count);
    const auto slices = static_cast<int64_t>(plan->slices.size());
    plan->planes_at = plan->slot_floats * (projects() ? slices : 1);
    plan->band_at = plan->planes_at;
    if (plan->planes) plan->band_at += whole_lines(plan->planes->ScratchBytes() / 4 + 1);
    plan->strip_floats = plan->band_at;
    if (plan->wants_means) plan->strip_floats += whole_lines(depthwise_.channels());
    if (projects()) {
      plan->strip_floats += whole_lines(plan->band * plan->width() * depthwise_.channels());
    }
  }

  // From the sums of strips.
  void WriteMeans(const ExpandPlan& plan, const KernelContext& k) const {
    const int64_t channels = depthwise_.channels();
    const float* sums = k.scratch<float>() + plan.band_at;
    std::fill_n(k.output<float>(1), plan.y[0] * channels, 0.0f);
    for (const Strip& strip : plan.strips) {
      float* means = k.output<float>(1) + strip.image * channels;
      simd_.binary(math::Binary::kAdd, means, sums, means, channels, 1, 1);
      sums += plan.strip_floats;
    }
    const float share = 1.0f / static_cast<float>(plan.y[1] * plan.y[2]);
    simd_.affine(k.output<float>(1), k.output<float>(1), plan.y[0] * channels, share, 0.0f);
  }

  void RunStrip(const ExpandPlan& plan, const Strip& strip, const KernelContext& k,
                float* scratch) const {
    if (projects()) return RunProjectedStrip(plan, strip, k, scratch);
    const int64_t row = plan.width() * depthwise_.channels();
    float* y = k.output<float>(0) + (strip.image * plan.y[1] + strip.begin) * row;
    float* sums = plan.wants_means ? scratch + plan.band_at : nullptr;
    if (sums != nullptr) std::fill_n(sums, depthwise_.channels(), 0.0f);
    for (const Slice& slice : plan.slices) {
      std::optional<onednn::PlanarReader> planes = PlanesOf(plan, strip, k, scratch);
      BandsOfStrip bands(plan, strip);
      while (const auto rows = bands.Next()) {
        RunBand(plan, strip, slice, *rows, planes, k, scratch,
                y + (rows->begin - strip.begin) * row, sums);
      }
    }
    depthwise_.activation().Apply(y, (strip.end - strip.begin) * row);
  }

  // All channels of a band, from which the product is made.
  void RunProjectedStrip(const ExpandPlan& plan, const Strip& strip, const KernelContext& k,
                         float* scratch) const {
    float* expanded = scratch + plan.band_at;
    std::optional<onednn::PlanarReader> planes = PlanesOf(plan, strip, k, scratch);
    BandsOfStrip bands(plan, strip);
    while (const auto rows = bands.Next()) {
      float* slots = scratch;
      for (const Slice& slice : plan.slices) {
        RunBand(plan, strip, slice, *rows, planes, k, slots, expanded, nullptr);
        slots += plan.slot_floats;
      }
      const int64_t pixels = (rows->end - rows->begin) * plan.width();
      depthwise_.activation().Apply(expanded, pixels * depthwise_.channels());
      Project(plan, strip.image * plan.y[1] + rows->begin, pixels, k, expanded);
    }
  }

  // Rows of the result from `row` on, of all images.
  void Project(const ExpandPlan& plan, int64_t row, int64_t pixels, const KernelContext& k,
               const float* from) const {
    const int64_t n = weights_.projected.n, at = row * plan.width() * n;
    float* y = k.output<float>(0) + at;
    const float* z = k.input<float>(kZ);
    if (z != nullptr && z != k.output<float>(0)) std::copy_n(z + at, pixels * n, y);
    math::GemmArguments g{};
    g.m = pixels;
    g.a = from, g.lda = depthwise_.channels();
    g.c = y, g.ldc = n;
    g.bias = k.input<float>(kProjectBias);
    g.accumulate = z != nullptr;
    MultiplyColumns(simd_, weights_.projected, weights_.project.data<float>(), g);
  }

  static std::optional<onednn::PlanarReader> PlanesOf(const ExpandPlan& plan, const Strip& strip,
                                                      const KernelContext& k, float* scratch) {
    if (!plan.planes) return std::nullopt;
    return std::make_optional<onednn::PlanarReader>(*plan.planes, ImageOf(plan, strip, k),
                                                    scratch + plan.planes_at);
  }

  static const float* ImageOf(const ExpandPlan& plan, const Strip& strip, const KernelContext& k) {
    return k.input<float>(kX) + strip.image * plan.x[1] * plan.x[2] * plan.x[3];
  }

  // out: [rows, width, channels], of which those of the slice are written; sums: [channels] or
  // null.
  void RunBand(const ExpandPlan& plan, const Strip& strip, const Slice& slice, const BandRows& rows,
               std::optional<onednn::PlanarReader>& planes, const KernelContext& k, float* slots,
               float* out, float* sums) const {
    const int64_t width = plan.expanded[2], row_floats = width * slice.count;
    for (int64_t row = rows.first; row < rows.last; ++row) {
      math::GemmArguments g{};
      if (planes) {
        g.columns = planes->Row(row);
        g.lda = plan.planes->window.strides[1];
      } else {
        g.a = ImageOf(plan, strip, k) + row * plan.x[2] * plan.x[3];
        g.lda = plan.x[3];
      }
      Expand(width, slice, k.input<float>(kExpandBias), slots + row % plan.slots * row_floats, g);
    }
    depthwise_.Compute(
        {slots, plan.expanded[1], width, plan.slots, slice.channel, slice.count, slice.count,
         sums != nullptr ? sums + slice.channel : nullptr, slice.repeated},
        plan.window, k.input<float>(kBias), rows.begin, rows.end, out);
  }

  // One row of the expanded image, of what `g` says where it is. bias: [channels] or null.
  void Expand(int64_t width, const Slice& slice, const float* bias, float* out,
              math::GemmArguments g) const {
    g.m = width, g.n = slice.count, g.k = depth_;
    g.packed_b = weights_.expand.data<float>() + slice.panel * simd_.gemm_width * depth_;
    g.c = out;
    g.ldc = slice.count;
    if (bias != nullptr) g.bias = bias + slice.channel;
    g.low = expand_activation_.low, g.high = expand_activation_.high;
    simd_.gemm(g);
    expand_activation_.rest.Apply(out, width * slice.count);
  }

  ActivationBounds expand_activation_;
  ExpandWeights weights_;
  int64_t depth_;  // of the product that expands a row
  DepthwiseConv depthwise_;
  const math::Simd& simd_;
};

Result<Tensor> PackExpandWeights(const Tensor& plain, const math::Simd& simd) {
  const int64_t channels = plain.shape()[0], k = plain.shape().ElementCount() / channels;
  ONNXD_ASSIGN_OR_RETURN(Tensor packed,
                         Tensor::Create(DataType::kFloat, Shape{PackedBSize(simd, k, channels)}));
  const int64_t panel_floats = simd.gemm_width * k;
  for (const Slice& slice : SlicesOf(channels, simd)) {
    simd.pack_b(plain.data<float>() + slice.channel * k, k, true, k, slice.count,
                packed.mutable_data<float>() + slice.panel * panel_floats);
  }
  return packed;
}

Result<Tensor> PackProjectWeights(const Tensor& plain, const ColumnCut& cut,
                                  const math::Simd& simd) {
  ONNXD_ASSIGN_OR_RETURN(Tensor packed,
                         Tensor::Create(DataType::kFloat, Shape{cut.PackedFloats(simd)}));
  PackColumns(simd, cut, plain.data<float>(), packed.mutable_data<float>());
  return packed;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeExpandDepthwise(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  ONNXD_ASSIGN_OR_RETURN(const Activation expand_activation, ActivationOf(ExpandNodeOf(info.node)));
  const Initializer* expand = info.constant_input(kExpandWeights);
  const Initializer* weights = info.constant_input(kWeights);
  const Initializer* project = info.constant_input(kProjectWeights);
  if (expand == nullptr || expand->shape().rank() != 4 || weights == nullptr ||
      (project == nullptr && info.node.input(kProjectWeights) != kNoValue) ||
      !DepthwiseConv::Takes(info.node.attributes, weights->shape())) {
    return Unimplemented("ExpandDepthwise needs constant weights, of windows up to 7 x 7");
  }
  const Shape &e = expand->shape(), &d = weights->shape();
  const bool is_planar = ExpandDepthwise::IsPlanar(info.node);
  const bool expands = is_planar ? onednn::TakesPlanes(ExpandNodeOf(info.node).attributes, e)
                                 : e[2] == 1 && e[3] == 1;
  const bool projects =
      project == nullptr || (project->shape().rank() == 4 && project->shape()[0] >= 1 &&
                             project->shape() == Shape{project->shape()[0], e[0], 1, 1});
  if (e[0] != d[0] || !expands || !projects) {
    return InvalidArgument(StrCat(Describe(info.node), ": weights of shapes ", e.ToString(),
                                  " and ", d.ToString(), " do not follow each other"));
  }
  const math::Simd& simd = math::CurrentSimd();
  if (is_planar && project != nullptr && e[0] > simd.gemm_width) {
    return Unimplemented("PlanarDepthwise projects the channels of one slice");
  }
  ExpandWeights packed;
  packed.expand_shape = e;
  ONNXD_ASSIGN_OR_RETURN(
      packed.expand,
      expand->InForm(StrCat("expand_depthwise in slices, ", simd.name),
                     [&](const Tensor& plain) { return PackExpandWeights(plain, simd); }));
  if (project != nullptr) {
    packed.projected = CutColumns(simd, e[0], project->shape()[0]);
    ONNXD_ASSIGN_OR_RETURN(
        packed.project,
        project->InForm(StrCat("projection, ", simd.name), [&](const Tensor& plain) {
          return PackProjectWeights(plain, packed.projected, simd);
        }));
  }
  ONNXD_ASSIGN_OR_RETURN(DepthwiseConv depthwise,
                         DepthwiseConv::Create(info.node.attributes, *weights, activation));
  if (info.node.outputs.size() > 1 &&
      (project != nullptr || depthwise.activation().kind != Activation::Kind::kNone)) {
    return Unimplemented("ExpandDepthwise has means of what its own loops alone give");
  }
  return std::unique_ptr<Kernel>(std::make_unique<ExpandDepthwise>(
      expand_activation, std::move(packed), std::move(depthwise), simd));
}

}  // namespace onnxd
