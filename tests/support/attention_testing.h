// Attention of heads, as kernels of devices are compared with the CPU's.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/device/gpu_device.h"
#include "runtime/providers/gpu/flash_attention.h"
#include "runtime/tensor/convert.h"
#include "runtime/tensor/device_tensor.h"
#include "tests/support/cast_model.h"

namespace onnxd {

struct Heads {
  int64_t queries, keys, width, value_width;
  int64_t batch = 1, query_heads = 2, key_heads = 2;
};

// Attention of ONNX, whose newest version is not above `opset`, with a mask of `mask` where it has
// dimensions; its result is "y".
inline CastModel AttentionOf(DataType type, int64_t opset, const Heads& h,
                             const Attributes& attributes, const Shape& mask) {
  CastModel m(type, opset);
  std::vector<std::string> inputs{m.Input({h.batch, h.query_heads, h.queries, h.width}),
                                  m.Input({h.batch, h.key_heads, h.keys, h.width}),
                                  m.Input({h.batch, h.key_heads, h.keys, h.value_width})};
  if (mask.rank() > 0) inputs.push_back(m.Input(mask));
  m.model().Node("Attention", inputs, {"y"}, attributes);
  return m;
}

// How far the results of kernels that compute in that type may be apart: shares are rounded to it,
// and results on either side.
inline double AttentionTolerance(DataType type) {
  if (type == DataType::kFloat) return 1e-5;
  return type == DataType::kFloat16 ? 2e-3 : 1.6e-2;
}

// What `run` makes of waves in that type, as floats.
inline Tensor AttentionOfWaves(
    GpuDevice& device, DataType type, const FlashSizes& sizes, size_t scratch_bytes,
    const std::function<Status(GpuStream&, const AttentionPointers&)>& run) {
  const auto stream = *device.MakeStream();
  std::vector<Tensor> operands;
  for (const int64_t rows : {sizes.queries, sizes.keys, sizes.keys}) {
    const Tensor wide = Waves({sizes.batch[0], rows, sizes.head}, static_cast<float>(rows));
    const Tensor narrow = *Converted(wide, type);
    operands.push_back(*CopyToDevice(narrow, device, *stream));
    EXPECT_TRUE(stream->Synchronize().ok());
  }
  Tensor y = *Tensor::Create(type, {sizes.batch[0], sizes.queries, sizes.value_head});
  const DeviceBuffer result = *device.Allocate(y.bytes());
  const DeviceBuffer scratch = *device.Allocate(scratch_bytes + 1);
  const Status ran =
      run(static_cast<GpuStream&>(*stream),
          {operands[0].raw(), operands[1].raw(), operands[2].raw(), result.get(), scratch.get()});
  EXPECT_TRUE(ran.ok()) << ran.ToString();
  EXPECT_TRUE(stream->CopyOut(y.mutable_raw(), result.get(), y.bytes()).ok());
  EXPECT_TRUE(stream->Synchronize().ok());
  return *Converted(y, DataType::kFloat);
}

}  // namespace onnxd
