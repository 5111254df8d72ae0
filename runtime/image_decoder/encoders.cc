// JPEG (libjpeg-turbo) and PNG (libpng), written.
#include <png.h>
#include <turbojpeg.h>

#include <memory>

#include "runtime/image_decoder/formats.h"

namespace onnxd::image {

std::vector<uint8_t> EncodeJpeg(const uint8_t* pixels, int64_t height, int64_t width) {
  constexpr int kQuality = 95;
  const std::unique_ptr<void, int (*)(tjhandle)> encoder(tjInitCompress(), tjDestroy);
  if (encoder == nullptr) throw DecodeError("no memory");
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: the library's type
  const int status =
      tjCompress2(encoder.get(), pixels, static_cast<int>(width), 0, static_cast<int>(height),
                  TJPF_RGB, &bytes, &size, TJSAMP_420, kQuality, 0);
  const std::unique_ptr<unsigned char, void (*)(unsigned char*)> owned(bytes, tjFree);
  if (status != 0) throw DecodeError(tjGetErrorStr2(encoder.get()));
  return {bytes, bytes + size};
}

std::vector<uint8_t> EncodePng(const uint8_t* pixels, int64_t height, int64_t width) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_RGB;
  const std::unique_ptr<png_image, void (*)(png_image*)> release(&image, png_image_free);
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<uint8_t> bytes(size);
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels, 0, nullptr) == 0) {
    throw DecodeError(image.message);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace onnxd::image
