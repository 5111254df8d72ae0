// A callable passed down the stack without owning it: no allocation, unlike std::function.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace onnxd {

template <typename Signature>
class FunctionRef;

// Valid as long as the callable it was made from; cheap to copy.
template <typename R, typename... Arguments>
class FunctionRef<R(Arguments...)> {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT: converts from any callable, as std::function does
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Arguments... arguments) -> R {
          return (*static_cast<std::add_pointer_t<F>>(object))(
              std::forward<Arguments>(arguments)...);
        }) {}

  R operator()(Arguments... arguments) const {
    return call_(object_, std::forward<Arguments>(arguments)...);
  }

 private:
  void* object_;
  R (*call_)(void*, Arguments...);
};

}  // namespace onnxd
