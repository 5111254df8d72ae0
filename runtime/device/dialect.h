// The language that kernels are written in: C that NVRTC (as CUDA C++) and OpenCL C 1.2 both accept
// after a prelude of macros.
//
//   KERNEL twice(GLOBAL const f32* x, GLOBAL f32* y, i64 count) {
//     const i64 i = GLOBAL_INDEX;
//     if (i < count) y[i] = x[i] + x[i];
//   }
//
//   types      i8 i16 i32 i64 u8 u16 u32 u64 f32 f64; f16 and bf16 are u16 in memory, and converted
//              by f16_to_f32, f32_to_f16, bf16_to_f32, f32_to_bf16
//   places     GLOBAL before pointers to the device's memory, LOCAL before arrays of a group
//   work       GROUP(axis), LANE(axis), GROUPS(axis), LANES(axis) are i64 and i32; GLOBAL_INDEX is
//              along the first axis; BARRIER() is for a group, all of whose lanes must come to it
//   functions  FUNCTION before their type; no pointers to functions, no recursion, no overloads
//   numbers    literals of f32 end in f; INFINITY_F32, NAN_F32; mathematics by OpenCL's names
//   matrices   products by a warp, see matrix_units.h, and by four, see warpgroup_units.h
//   failures   RAISE(failure, step, code, value) for what indices in data may ask, see
//   DeviceFailure
//
// Strides of tensors come as Dims: an array of MAX_RANK numbers, by value.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "runtime/tensor/data_type.h"
#include "runtime/tensor/shape.h"

namespace onnxd {

enum class Dialect { kOpenCl, kCuda };

std::string_view Prelude(Dialect dialect);

inline constexpr int kMostDeviceDims = 8;  // MAX_RANK
struct DeviceDims {
  std::array<int64_t, kMostDeviceDims> values = {};
};

// Whether kernels compute with elements of that type.
bool IsDeviceType(DataType type);

// "f32" and the like, as it is in memory. Requires IsDeviceType.
std::string_view StorageName(DataType type);
// As expressions compute with it: f32 for f16 and bf16.
std::string_view ComputeName(DataType type);

// Macros for a type under a name of the source's own:
//   X          the type in memory          X_C        the type that expressions have
//   X_GET(p, i), X_PUT(p, i, v)            an element, converted
// Requires IsDeviceType.
std::string DefineType(std::string_view name, DataType type);

// "#define NAME value".
// NAME_VECTOR, of `count` elements: `at[i]`, and all of them as `words`, a NAME_WORDS, for one load or
// store. Requires a device type, of which so many have 2, 4, 8 or 16 bytes; after DefineType.
std::string DefineVector(std::string_view name, DataType type, int64_t count);

// The type of so many bytes, 1, 2, 4, 8 or 16, that a lane moves at once.
std::string_view MovedBy(int64_t bytes);

std::string Define(std::string_view name, std::string_view value);
std::string Define(std::string_view name, int64_t value);

}  // namespace onnxd
