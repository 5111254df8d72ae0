#include "runtime/image_decoder/image_decoder.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "runtime/image_decoder/formats.h"

namespace onnxd::image {
namespace {

Picture Decode(Bytes data, int64_t max_pixels) {
  const std::string_view head(reinterpret_cast<const char*>(data.data()),
                              std::min<size_t>(data.size(), 16));
  const auto begins = [&](std::string_view magic) { return head.starts_with(magic); };
  using namespace std::string_view_literals;
  if (begins("BM")) return DecodeBmp(data, max_pixels);
  if (begins("\xff\xd8\xff")) return DecodeJpeg(data, max_pixels);
  if (begins("\x89PNG\r\n\x1a\n")) return DecodePng(data, max_pixels);
  if (begins("II*\0"sv) || begins("MM\0*"sv)) return DecodeTiff(data, max_pixels);
  if (begins("RIFF") && head.substr(8, 4) == "WEBP") return DecodeWebp(data, max_pixels);
  if (begins("\0\0\0\x0cjP  \r\n\x87\n"sv) || begins("\xff\x4f\xff\x51")) {
    return DecodeJpeg2000(data, max_pixels);
  }
  if (head.size() > 2 && head[0] == 'P' && head[1] >= '1' && head[1] <= '6') {
    return DecodePnm(data, max_pixels);
  }
  throw DecodeError("it is no BMP, JPEG, JPEG 2000, PNG, PNM, TIFF or WebP image");
}

}  // namespace

Picture MakePicture(int64_t height, int64_t width, int64_t max_pixels) {
  if (height < 1 || width < 1 || height > (1 << 30) || width > (1 << 30) ||
      height * width > max_pixels) {
    throw DecodeError(std::to_string(width) + " x " + std::to_string(height) +
                      " pixels, the limit is " + std::to_string(max_pixels));
  }
  Picture picture;
  picture.height = height;
  picture.width = width;
  picture.pixels.resize(static_cast<size_t>(height * width * 3));
  return picture;
}

}  // namespace onnxd::image

int32_t onnxd_decode_image(const uint8_t* data, size_t size, int64_t max_pixels, OnnxdImage* image,
                           char* error, size_t error_size) {
  try {
    const onnxd::image::Picture picture = onnxd::image::Decode({data, size}, max_pixels);
    auto* pixels = static_cast<uint8_t*>(std::malloc(picture.pixels.size()));
    if (pixels == nullptr) throw onnxd::image::DecodeError("no memory");
    std::memcpy(pixels, picture.pixels.data(), picture.pixels.size());
    *image = {picture.height, picture.width, pixels};
    return 0;
  } catch (const std::exception& failure) {
    std::snprintf(error, error_size, "%s", failure.what());
  }
  return 1;
}

int32_t onnxd_encode_image(const uint8_t* pixels, int64_t height, int64_t width, int32_t jpeg,
                           OnnxdEncoded* encoded, char* error, size_t error_size) {
  try {
    constexpr int64_t kMost = 65500;  // of JPEG
    if (height < 1 || width < 1 || height > kMost || width > kMost) {
      throw onnxd::image::DecodeError(std::to_string(width) + " x " + std::to_string(height) +
                                      " pixels; an extent must be 1 to " + std::to_string(kMost));
    }
    const std::vector<uint8_t> bytes = jpeg != 0 ? onnxd::image::EncodeJpeg(pixels, height, width)
                                                 : onnxd::image::EncodePng(pixels, height, width);
    auto* copy = static_cast<uint8_t*>(std::malloc(bytes.size()));
    if (copy == nullptr) throw onnxd::image::DecodeError("no memory");
    std::memcpy(copy, bytes.data(), bytes.size());
    *encoded = {bytes.size(), copy};
    return 0;
  } catch (const std::exception& failure) {
    std::snprintf(error, error_size, "%s", failure.what());
  }
  return 1;
}
