// ONNXD_ADDRESS_SANITIZER is defined where AddressSanitizer watches: gcc and clang say so in
// different ways.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define ONNXD_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ONNXD_ADDRESS_SANITIZER
#endif
#endif
