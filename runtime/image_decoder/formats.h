// The image formats, a function each.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace onnxd::image {

using Bytes = std::span<const uint8_t>;

// Ends at onnxd_decode_image, or onnxd_encode_image.
struct DecodeError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Picture {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3]
};

// Checks the size and takes the memory. Throws DecodeError beyond max_pixels.
Picture MakePicture(int64_t height, int64_t width, int64_t max_pixels);

// Of pixels [height, width, 3]. Each throws DecodeError, or std::bad_alloc.
std::vector<uint8_t> EncodeJpeg(const uint8_t* pixels, int64_t height, int64_t width);
std::vector<uint8_t> EncodePng(const uint8_t* pixels, int64_t height, int64_t width);

// Each throws DecodeError, or std::bad_alloc.
Picture DecodeBmp(Bytes data, int64_t max_pixels);
Picture DecodeJpeg(Bytes data, int64_t max_pixels);
Picture DecodeJpeg2000(Bytes data, int64_t max_pixels);
Picture DecodePng(Bytes data, int64_t max_pixels);
Picture DecodePnm(Bytes data, int64_t max_pixels);
Picture DecodeTiff(Bytes data, int64_t max_pixels);
Picture DecodeWebp(Bytes data, int64_t max_pixels);

}  // namespace onnxd::image
