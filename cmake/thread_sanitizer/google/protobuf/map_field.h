// Under ThreadSanitizer protobuf's header gives maps two members more, which the system's library,
// compiled without it, does not have: what comes after them would be read from elsewhere.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include_next <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
