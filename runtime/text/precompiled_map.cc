#include "runtime/text/precompiled_map.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// Of a replacement, so that no table makes much of little; Unicode's longest has 54.
constexpr size_t kMostBytes = 256;

// A unit of Darts-clone's array.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7fffffff; }
uint32_t LabelOf(uint32_t unit) { return unit & 0x800000ff; }
uint32_t OffsetOf(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

}  // namespace

Result<PrecompiledMap> PrecompiledMap::Parse(std::string_view bytes) {
  PrecompiledMap map;
  if (bytes.empty()) return map;
  uint32_t size = 0;
  if (bytes.size() >= sizeof(size)) std::memcpy(&size, bytes.data(), sizeof(size));
  if (bytes.size() < sizeof(size) || size % sizeof(uint32_t) != 0 ||
      size > bytes.size() - sizeof(size)) {
    return InvalidArgument(
        StrCat("a character map of ", bytes.size(), " bytes says that its table has ", size));
  }
  map.units_.resize(size / sizeof(uint32_t));
  if (size > 0) std::memcpy(map.units_.data(), bytes.data() + sizeof(size), size);
  map.replacements_ = bytes.substr(sizeof(size) + size);
  return map;
}

PrecompiledMap::Match PrecompiledMap::Longest(std::string_view text, size_t at) const {
  Match best;
  if (units_.empty()) return best;
  uint32_t node = OffsetOf(units_[0]);
  for (size_t i = at; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || LabelOf(units_[node]) != byte) break;
    const bool leaf = HasLeaf(units_[node]);
    node ^= OffsetOf(units_[node]);
    if (node >= units_.size()) break;
    if (!leaf) continue;
    const size_t begin = ValueOf(units_[node]);
    if (begin >= replacements_.size()) break;
    const size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
    if (end - begin > kMostBytes) break;
    best = {std::string_view(replacements_).substr(begin, end - begin), i + 1 - at};
  }
  return best;
}

}  // namespace onnxd
