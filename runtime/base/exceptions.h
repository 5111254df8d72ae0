// The edge at which exceptions end: what throws below it (the standard library when memory is
// refused, a library that we call) becomes a Status.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/base/status.h"

namespace onnxd {

// Calls `function`, which returns a Status or a Result. kResourceExhausted for refused memory,
// kInternal with the exception's text for all others.
template <typename Function>
auto CatchExceptions(Function&& function) -> decltype(function()) {
  try {
    return std::forward<Function>(function)();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory");
  } catch (const std::length_error&) {
    return ResourceExhausted("no memory");
  } catch (const std::exception& error) {
    return Internal(std::string("unexpected: ") + error.what());
  }
}

}  // namespace onnxd
