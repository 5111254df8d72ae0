// Domain com.microsoft.nchwc: what onnxruntime's optimization level "all" leaves in saved models.
// Its images lie in blocks of 8 or 16 channels, as many as the processor's vectors hold; ours stay
// [batch, channels, height, width] with the channels rounded up to whole blocks, so only what is
// stored that way, the filters, is put back in order. Source: onnxruntime's NchwcTransformer and
// the filter layouts OIHWBiBo and OIHWBo of its MLAS.
#include "runtime/base/str_cat.h"
#include "runtime/ops/functions.h"
#include "runtime/ops/functions/dimensions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

constexpr const char* kBlocked = "com.microsoft.nchwc";

// A file does not say its blocks' size: output channels that no block of 16 divides were in blocks
// of 8, others are taken as onnxruntime would store them on this processor.
int64_t BlockSize(int64_t out_channels) {
  if (out_channels % 16 != 0) return 8;
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") ? 16 : 8;
#else
  return 16;
#endif
}

// W [out, in / group, height, width] as it lies in a file, back in that order.
Result<Operand> PlainFilter(FunctionBody& body) {
  const int64_t out = body.InputDim(1, 0), in = body.InputDim(1, 1);
  const int64_t height = body.InputDim(1, 2), width = body.InputDim(1, 3);
  if (body.InputRank(1) != 4 || out < 1 || in < 1 || height < 1 || width < 1) {
    return Unimplemented("the shape of W is not known");
  }
  const int64_t block = BlockSize(out);
  if (out % block != 0) {
    return InvalidArgument(StrCat("W has ", out, " filters, which are no whole blocks"));
  }
  // Images that are not in blocks yet, and depthwise filters, are in blocks of filters alone.
  const int64_t inner = in % block == 0 ? block : 1;
  const Operand blocks = body.Call(
      "Reshape",
      {body.Input(1), body.Integers({out / block, in / inner, height, width, inner, block})});
  const Operand ordered = body.Call(
      "Transpose", {blocks}, MakeAttributes({{"perm", std::vector<int64_t>{0, 5, 1, 4, 2, 3}}}));
  return body.Call("Reshape", {ordered, body.Integers({out, in, height, width})});
}

// X, W, B?, Sum?: what FusedConv does.
Status Conv(FunctionBody& body) {
  ONNXD_ASSIGN_OR_RETURN(const Operand filter, PlainFilter(body));
  const Attributes& a = body.attributes();
  if (a.Has("activation") || body.HasInput(3)) {
    body.Return(0, body.Call("FusedConv", {body.Input(0), filter, body.Input(2), body.Input(3)}, a,
                             "com.microsoft"));
  } else {
    body.Return(0, body.Call("Conv", {body.Input(0), filter, body.Input(2)}, a));
  }
  return Status::Ok();
}

Status Pool(FunctionBody& body) {
  body.Return(0, body.Call(body.node().op_type, {body.Input(0)}, body.attributes()));
  return Status::Ok();
}

// To channels in whole blocks, which stand first.
Status ReorderInput(FunctionBody& body) {
  const bool last = body.attributes().Int("channels_last", 0) != 0;
  const Operand x = last ? ChannelsFirst(body, body.Input(0), 4) : body.Input(0);
  // The remainder has the sign of what divides.
  const Operand missing = body.Call("Neg", {DimensionOf(body, x, 1)});
  const Operand padding = body.Call("Mod", {missing, body.Integers({BlockSize(16)})});
  const Operand pads =
      body.Call("Concat", {body.Integers({0, 0, 0, 0, 0}), padding, body.Integers({0, 0})},
                MakeAttributes({{"axis", int64_t{0}}}));
  body.Return(0, body.Call("Pad", {x, pads}));
  return Status::Ok();
}

// The first `channels`, in the order that others read.
Status ReorderOutput(FunctionBody& body) {
  const int64_t channels = body.attributes().Int("channels", 0);
  if (channels < 1) return InvalidArgument("channels must be positive");
  const Operand plain =
      Slice(body, body.Input(0), body.Integers({0}), body.Integers({channels}), 1);
  const bool last = body.attributes().Int("channels_last", 0) != 0;
  body.Return(0, last ? ChannelsLast(body, plain, 4) : plain);
  return Status::Ok();
}

// scales: of all four axes, whole numbers.
Status Upsample(FunctionBody& body) {
  const Attributes& a = body.attributes();
  std::vector<float> scales;
  for (const int64_t scale : a.Ints("scales")) scales.push_back(static_cast<float>(scale));
  if (scales.size() != 4) return InvalidArgument("scales needs 4 numbers");
  const std::string mode = a.String("mode", "nearest");
  const std::string coordinates = a.String("coordinate_transformation_mode", "asymmetric");
  Attributes resize;
  resize.Set("mode", mode);
  resize.Set("coordinate_transformation_mode", coordinates);
  resize.Set("nearest_mode", std::string("floor"));
  const Operand factors = body.Constant(Tensor::Of<float>(Shape{4}, scales));
  body.Return(0, body.Call("Resize", {body.Input(0), {}, factors}, resize));
  return Status::Ok();
}

constexpr FunctionEntry kFunctions[] = {
    {kBlocked, "AveragePool", 1, 1 << 30, Pool},
    {kBlocked, "Conv", 1, 1 << 30, Conv},
    {kBlocked, "GlobalAveragePool", 1, 1 << 30, Pool},
    {kBlocked, "GlobalMaxPool", 1, 1 << 30, Pool},
    {kBlocked, "MaxPool", 1, 1 << 30, Pool},
    {kBlocked, "ReorderInput", 1, 1 << 30, ReorderInput},
    {kBlocked, "ReorderOutput", 1, 1 << 30, ReorderOutput},
    {kBlocked, "Upsample", 1, 1 << 30, Upsample},
};

}  // namespace

std::span<const FunctionEntry> ContribBlockedFunctions() { return kFunctions; }

}  // namespace onnxd
