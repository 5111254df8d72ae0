// Whether functions of NVIDIA's libraries are declared here as their headers do: enumerations are
// ints here, and pointers to NVIDIA's objects are pointers to nothing known.
#pragma once

#include <type_traits>

namespace onnxd {

template <typename Ours, typename Theirs>
constexpr bool kSameParameter = std::is_same_v<Ours, Theirs> ||
                                (std::is_enum_v<Theirs> && std::is_same_v<Ours, int> &&
                                 sizeof(Theirs) == sizeof(int)) ||
                                (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs> &&
                                 std::is_const_v<std::remove_pointer_t<Ours>> ==
                                     std::is_const_v<std::remove_pointer_t<Theirs>>);
template <typename Ours, typename Theirs>
constexpr bool kSameFunction = false;
template <typename... Ours, typename Code, typename... Theirs>
requires(sizeof...(Ours) == sizeof...(Theirs) &&
         std::is_enum_v<Code>) constexpr bool kSameFunction<int (*)(Ours...), Code (*)(Theirs...)> =
    (kSameParameter<Ours, Theirs> && ...);

}  // namespace onnxd
