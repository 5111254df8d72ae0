// The loops for AMX on tiles in plain C++, so that processors without AMX test them as well.
#pragma once

namespace onnxd::math {

constexpr const char* kEmulatedTiles = "emulated_tiles";

// Makes them CurrentSimd(); false where the processor lacks the AVX512-VNNI that they need besides.
bool SetEmulatedTiles();

}  // namespace onnxd::math
