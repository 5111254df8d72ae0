#include "runtime/ops/rotary_embedding.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {

RotaryInputs RotaryInputsOf(const Node& node) {
  return node.domain.empty() ? RotaryInputs{1, 2, 3} : RotaryInputs{2, 3, 1};
}

Result<RotarySizes> RotarySizesOf(const Node& node, const Shape& x, const Shape& cosines,
                                  const Shape& sines, const Shape* positions) {
  const Attributes& a = node.attributes;
  const bool standard = node.domain.empty();
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat(Describe(node), ": ", why, " (X ", x.ToString(), ", cos ",
                                  cosines.ToString(), ", sin ", sines.ToString(), ")"));
  };
  if (a.Int("is_packed_batching", 0) != 0) {
    return Unimplemented(StrCat(Describe(node), ": is_packed_batching is not supported"));
  }
  RotarySizes s{};
  s.split_heads = x.rank() == 4;
  if (!s.split_heads && x.rank() != 3) return fail("X needs rank 3 or 4");
  s.batch = x[0];
  s.sequence = x[s.split_heads ? 2 : 1];
  s.width = cosines.rank() > 0 ? cosines[cosines.rank() - 1] : 0;
  const int64_t hidden = s.split_heads ? x[1] * x[3] : x[2];
  s.heads = s.split_heads ? x[1] : a.Int("num_heads", 0);
  if (s.heads == 0 && !standard) s.heads = hidden / std::max<int64_t>(2 * s.width, 1);
  if (s.heads < 1 || hidden % s.heads != 0) return fail("num_heads does not divide X");
  s.size = hidden / s.heads;
  s.rotated = a.Int("rotary_embedding_dim", 0);
  if (s.rotated == 0) s.rotated = standard ? s.size : std::min(s.size, 2 * s.width);
  if (s.rotated < 2 || s.rotated % 2 != 0 || s.rotated > s.size) {
    return fail("rotary_embedding_dim");
  }
  s.interleaved = a.Int("interleaved", 0) != 0;
  s.rows = cosines.rank() > 0 ? cosines[0] : 0;
  // Wider caches are read in part.
  const Shape wanted =
      positions == nullptr ? Shape{s.batch, s.sequence, s.width} : Shape{s.rows, s.width};
  if (!(cosines == wanted) || !(sines == wanted) || s.width < s.half()) {
    return fail("a cache does not fit");
  }
  if (positions == nullptr) {
    s.rows = s.batch * s.sequence;
    return s;
  }
  const int64_t count = positions->ElementCount();
  const bool only_first = !standard && count == 1;
  if (!only_first && count != s.batch * s.sequence) return fail("position_ids do not fit");
  s.positions = only_first ? RotarySizes::Positions::kFirst : RotarySizes::Positions::kEach;
  return s;
}

}  // namespace onnxd
