// QuantizeLinear and DequantizeLinear between floats and bytes, one scale for all or one per slice
// of an axis, and DynamicQuantizeLinear-11. Other types and blocks are in quantize.cc.
#include "runtime/providers/cpu/quantize_bytes.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/quantization.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread

// `outer` times `extent` rows of `inner` elements; scale i belongs to row i modulo extent.
struct ScaleRows {
  int64_t outer = 1, extent = 1, inner = 1;
};

Result<ScaleRows> RowsOf(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const Shape& scale = context.InputShape(1);
  const int64_t scales = scale.ElementCount();
  if (context.HasInput(2) && context.InputShape(2).ElementCount() != scales) {
    return InvalidArgument(StrCat(Describe(context.node), ": zero point of shape ",
                                  context.InputShape(2).ToString(), ", scale of shape ",
                                  scale.ToString()));
  }
  if (scales == 1) return ScaleRows{1, 1, x.ElementCount()};
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(context.node.attributes.Int("axis", 1), x.rank()));
  if (scale.rank() != 1 || scale[0] != x[axis]) {
    return InvalidArgument(StrCat(Describe(context.node), ": scale of shape ", scale.ToString(),
                                  " does not fit axis ", axis, " of the input's shape ",
                                  x.ToString()));
  }
  return ScaleRows{x.ElementCount(0, axis), x[axis], x.ElementCount(axis + 1, x.rank())};
}

// Calls body(first element, count, format) for pieces of rows, on all threads.
template <typename Body>
void ForPieces(const KernelContext& k, const ScaleRows& rows, bool is_signed, Body body) {
  const auto format = [&](int64_t i) {
    const uint8_t* zero = k.input<uint8_t>(2);
    return math::Quantization{is_signed, k.input<float>(1)[i],
                              zero == nullptr ? 0.0f : ByteAt(zero + i, is_signed)};
  };
  if (rows.outer * rows.extent == 1) {
    k.pool().ParallelFor(rows.inner, kGrain,
                         [&](int64_t begin, int64_t end) { body(begin, end - begin, format(0)); });
    return;
  }
  const int64_t grain = 1 + kGrain / std::max<int64_t>(1, rows.inner);
  k.pool().ParallelFor(rows.outer * rows.extent, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      body(row * rows.inner, rows.inner, format(row % rows.extent));
    }
  });
}

Result<PreparedKernel> PrepareQuantize(const PrepareContext& context, bool is_signed) {
  ONNXD_ASSIGN_OR_RETURN(const ScaleRows rows, RowsOf(context));
  PreparedKernel prepared;
  prepared.compute = [rows, is_signed](const KernelContext& k) {
    const math::Simd& simd = math::CurrentSimd();
    ForPieces(k, rows, is_signed, [&](int64_t first, int64_t count, const math::Quantization& to) {
      simd.quantize(k.input<float>(0) + first, to, k.output<uint8_t>(0) + first, count);
    });
    return Status::Ok();
  };
  return prepared;
}

// Each element of a row of rows.extent has a scale of its own.
template <typename Byte>
void DequantizeColumns(const KernelContext& k, const ScaleRows& rows) {
  const Byte* zeros = k.input<Byte>(2);
  const float* scales = k.input<float>(1);
  const int64_t n = rows.extent;
  k.pool().ParallelFor(rows.outer, 1 + kGrain / n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Byte* from = k.input<Byte>(0) + row * n;
      float* to = k.output<float>(0) + row * n;
      if (zeros == nullptr) {
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]) * scales[i];
      } else {
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i] - zeros[i]) * scales[i];
      }
    }
  });
}

Result<PreparedKernel> PrepareDequantize(const PrepareContext& context, bool is_signed) {
  ONNXD_ASSIGN_OR_RETURN(const ScaleRows rows, RowsOf(context));
  PreparedKernel prepared;
  if (rows.inner == 1 && rows.extent > 1) {
    prepared.compute = [rows, is_signed](const KernelContext& k) {
      is_signed ? DequantizeColumns<int8_t>(k, rows) : DequantizeColumns<uint8_t>(k, rows);
      return Status::Ok();
    };
    return prepared;
  }
  prepared.compute = [rows, is_signed](const KernelContext& k) {
    const math::Simd& simd = math::CurrentSimd();
    ForPieces(
        k, rows, is_signed, [&](int64_t first, int64_t count, const math::Quantization& from) {
          simd.dequantize(k.input<uint8_t>(0) + first, from, k.output<float>(0) + first, count);
        });
    return Status::Ok();
  };
  return prepared;
}

bool OneScaleAsUsual(const KernelInfo& info, DataType byte, DataType number) {
  const bool zero_fits = info.node.input(2) == kNoValue || info.InputType(2) == byte;
  return IsByte(byte) && number == DataType::kFloat && info.InputType(1) == DataType::kFloat &&
         zero_fits && info.node.attributes.Int("block_size", 0) == 0 &&
         info.node.attributes.Int("precision", 1) == 1;
}

}  // namespace

math::Quantization DynamicFormat(const float* x, int64_t n) {
  const math::Simd& simd = math::CurrentSimd();
  const float low = n == 0 ? 0.0f : std::min(0.0f, simd.min(x, n));
  float high = n == 0 ? 0.0f : simd.max(x, n);
  high = high > 0.0f ? high : 0.0f;  // NaN as well
  const float scale = high == low ? 1.0f : (high - low) / 255.0f;
  const float zero = std::clamp(std::nearbyint(-low / scale), 0.0f, 255.0f);
  return {false, scale, zero >= 0.0f ? zero : 0.0f};
}

Result<std::unique_ptr<Kernel>> MakeByteQuantize(const KernelInfo& info) {
  const DataType to = info.OutputType(0);
  if (!OneScaleAsUsual(info, to, info.InputType(0))) return Unimplemented("not floats to bytes");
  return MakeKernel([is_signed = to == DataType::kInt8](const PrepareContext& context) {
    return PrepareQuantize(context, is_signed);
  });
}

Result<std::unique_ptr<Kernel>> MakeByteDequantize(const KernelInfo& info) {
  const DataType from = info.InputType(0);
  if (!OneScaleAsUsual(info, from, info.OutputType(0))) return Unimplemented("not bytes to floats");
  return MakeKernel([is_signed = from == DataType::kInt8](const PrepareContext& context) {
    return PrepareDequantize(context, is_signed);
  });
}

Result<std::unique_ptr<Kernel>> MakeDynamicQuantizeLinear(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType("DynamicQuantizeLinear", info.InputType(0));
  }
  return MakeKernel([](const PrepareContext& context) -> Result<PreparedKernel> {
    PreparedKernel prepared;
    prepared.compute = [n = context.InputShape(0).ElementCount()](const KernelContext& k) {
      const math::Quantization to = DynamicFormat(k.input<float>(0), n);
      if (auto* scale = k.output<float>(1)) *scale = to.scale;
      if (auto* zero = k.output<uint8_t>(2)) *zero = static_cast<uint8_t>(to.zero);
      if (k.output<uint8_t>(0) == nullptr) return Status::Ok();
      k.pool().ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
        math::CurrentSimd().quantize(k.input<float>(0) + begin, to, k.output<uint8_t>(0) + begin,
                                     end - begin);
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
