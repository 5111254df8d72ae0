// JPEG (libjpeg-turbo), PNG (libpng), WebP (libwebp), TIFF (libtiff), JPEG 2000 (OpenJPEG).
#include <openjpeg.h>
#include <png.h>
#include <tiffio.h>
#include <turbojpeg.h>
#include <webp/decode.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "runtime/image_decoder/formats.h"

namespace onnxd::image {
namespace {

// [.., 4] to [.., 3].
void DropAlpha(const uint8_t* rgba, Picture& picture) {
  for (size_t i = 0; i < picture.pixels.size() / 3; ++i) {
    std::copy_n(rgba + i * 4, 3, picture.pixels.begin() + static_cast<std::ptrdiff_t>(i) * 3);
  }
}

// What libtiff and OpenJPEG read from.
struct MemoryFile {
  Bytes data;
  size_t at = 0;

  size_t Read(void* to, size_t size) {
    const size_t count = std::min(size, data.size() - at);
    std::memcpy(to, data.data() + at, count);
    at += count;
    return count;
  }
};

MemoryFile& FileOf(void* handle) { return *static_cast<MemoryFile*>(handle); }

tmsize_t TiffRead(thandle_t handle, void* to, tmsize_t size) {
  return static_cast<tmsize_t>(
      FileOf(handle).Read(to, static_cast<size_t>(std::max<tmsize_t>(size, 0))));
}
tmsize_t TiffWrite(thandle_t, void*, tmsize_t) { return 0; }
toff_t TiffSeek(thandle_t handle, toff_t offset, int whence) {
  MemoryFile& file = FileOf(handle);
  const uint64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? file.at : file.data.size();
  const uint64_t position = base + offset;
  if (position > file.data.size()) return static_cast<toff_t>(-1);
  file.at = static_cast<size_t>(position);
  return position;
}
int TiffClose(thandle_t) { return 0; }
toff_t TiffSize(thandle_t handle) { return FileOf(handle).data.size(); }

OPJ_SIZE_T JpegRead(void* to, OPJ_SIZE_T size, void* handle) {
  const size_t count = FileOf(handle).Read(to, size);
  return count == 0 ? static_cast<OPJ_SIZE_T>(-1) : count;
}
OPJ_OFF_T JpegSkip(OPJ_OFF_T count, void* handle) {
  MemoryFile& file = FileOf(handle);
  if (count < 0 || static_cast<uint64_t>(count) > file.data.size() - file.at) return -1;
  file.at += static_cast<size_t>(count);
  return count;
}
OPJ_BOOL JpegSeek(OPJ_OFF_T position, void* handle) {
  MemoryFile& file = FileOf(handle);
  if (position < 0 || static_cast<uint64_t>(position) > file.data.size()) return OPJ_FALSE;
  file.at = static_cast<size_t>(position);
  return OPJ_TRUE;
}

// A component's sample as 8 bits.
uint8_t SampleOf(const opj_image_comp_t& component, size_t index) {
  int64_t value = component.data[index];
  if (component.sgnd != 0) value += int64_t{1} << (component.prec - 1);
  if (component.prec > 8) value >>= component.prec - 8;
  if (component.prec < 8) value = value * 255 / ((int64_t{1} << component.prec) - 1);
  return static_cast<uint8_t>(std::clamp<int64_t>(value, 0, 255));
}

}  // namespace

Picture DecodeJpeg(Bytes data, int64_t max_pixels) {
  const std::unique_ptr<void, int (*)(tjhandle)> decoder(tjInitDecompress(), tjDestroy);
  if (decoder == nullptr) throw DecodeError("no memory");
  const auto fail = [&] { throw DecodeError(tjGetErrorStr2(decoder.get())); };
  int width = 0, height = 0, subsampling = 0, colours = 0;
  const auto size = static_cast<unsigned long>(data.size());  // NOLINT: the library's type
  if (tjDecompressHeader3(decoder.get(), data.data(), size, &width, &height, &subsampling,
                          &colours) != 0) {
    fail();
  }
  Picture picture = MakePicture(height, width, max_pixels);
  if (tjDecompress2(decoder.get(), data.data(), size, picture.pixels.data(), width, 0, height,
                    TJPF_RGB, 0) != 0 &&
      tjGetErrorCode(decoder.get()) == TJERR_FATAL) {
    fail();
  }
  return picture;
}

Picture DecodePng(Bytes data, int64_t max_pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&image, data.data(), data.size()) == 0) {
    throw DecodeError(image.message);
  }
  const std::unique_ptr<png_image, void (*)(png_image*)> release(&image, png_image_free);
  Picture picture = MakePicture(image.height, image.width, max_pixels);
  image.format = PNG_FORMAT_RGBA;
  std::vector<uint8_t> rgba(picture.pixels.size() / 3 * 4);
  if (png_image_finish_read(&image, nullptr, rgba.data(), 0, nullptr) == 0) {
    throw DecodeError(image.message);
  }
  DropAlpha(rgba.data(), picture);
  return picture;
}

Picture DecodeWebp(Bytes data, int64_t max_pixels) {
  int width = 0, height = 0;
  if (WebPGetInfo(data.data(), data.size(), &width, &height) == 0) {
    throw DecodeError("the WebP header is broken");
  }
  Picture picture = MakePicture(height, width, max_pixels);
  if (WebPDecodeRGBInto(data.data(), data.size(), picture.pixels.data(), picture.pixels.size(),
                        width * 3) == nullptr) {
    throw DecodeError("the WebP data is broken");
  }
  return picture;
}

Picture DecodeTiff(Bytes data, int64_t max_pixels) {
  MemoryFile file{data};
  TIFFSetErrorHandler(nullptr);  // the library would print
  TIFFSetWarningHandler(nullptr);
  const std::unique_ptr<TIFF, void (*)(TIFF*)> tiff(
      TIFFClientOpen("image", "rm", &file, TiffRead, TiffWrite, TiffSeek, TiffClose, TiffSize,
                     nullptr, nullptr),
      TIFFClose);
  uint32_t width = 0, height = 0;
  if (tiff == nullptr || TIFFGetField(tiff.get(), TIFFTAG_IMAGEWIDTH, &width) == 0 ||
      TIFFGetField(tiff.get(), TIFFTAG_IMAGELENGTH, &height) == 0) {
    throw DecodeError("the TIFF header is broken");
  }
  Picture picture = MakePicture(height, width, max_pixels);
  std::vector<uint32_t> rgba(picture.pixels.size() / 3);
  if (TIFFReadRGBAImageOriented(tiff.get(), width, height, rgba.data(), ORIENTATION_TOPLEFT, 1) ==
      0) {
    throw DecodeError("the TIFF data is broken");
  }
  for (size_t i = 0; i < rgba.size(); ++i) {
    picture.pixels[i * 3] = static_cast<uint8_t>(TIFFGetR(rgba[i]));
    picture.pixels[i * 3 + 1] = static_cast<uint8_t>(TIFFGetG(rgba[i]));
    picture.pixels[i * 3 + 2] = static_cast<uint8_t>(TIFFGetB(rgba[i]));
  }
  return picture;
}

Picture DecodeJpeg2000(Bytes data, int64_t max_pixels) {
  MemoryFile file{data};
  const bool boxed = data[0] == 0;
  const std::unique_ptr<opj_codec_t, void (*)(opj_codec_t*)> codec(
      opj_create_decompress(boxed ? OPJ_CODEC_JP2 : OPJ_CODEC_J2K), opj_destroy_codec);
  const std::unique_ptr<opj_stream_t, void (*)(opj_stream_t*)> stream(
      opj_stream_create(1 << 16, OPJ_TRUE), opj_stream_destroy);
  if (codec == nullptr || stream == nullptr) throw DecodeError("no memory");
  opj_stream_set_user_data(stream.get(), &file, nullptr);
  opj_stream_set_user_data_length(stream.get(), data.size());
  opj_stream_set_read_function(stream.get(), JpegRead);
  opj_stream_set_skip_function(stream.get(), JpegSkip);
  opj_stream_set_seek_function(stream.get(), JpegSeek);
  opj_dparameters_t parameters;
  opj_set_default_decoder_parameters(&parameters);
  opj_image_t* read = nullptr;
  const bool opened = opj_setup_decoder(codec.get(), &parameters) != 0 &&
                      opj_read_header(stream.get(), codec.get(), &read) != 0;
  const std::unique_ptr<opj_image_t, void (*)(opj_image_t*)> image(read, opj_image_destroy);
  if (!opened) throw DecodeError("the JPEG 2000 header is broken");
  Picture picture = MakePicture(static_cast<int64_t>(image->y1) - image->y0,
                                static_cast<int64_t>(image->x1) - image->x0, max_pixels);
  if (opj_decode(codec.get(), stream.get(), image.get()) == 0 || image->numcomps < 1) {
    throw DecodeError("the JPEG 2000 data is broken");
  }
  const size_t count = picture.pixels.size() / 3;
  const uint32_t colours = image->numcomps < 3 ? 1 : 3;
  for (uint32_t c = 0; c < colours; ++c) {
    const opj_image_comp_t& component = image->comps[c];
    if (component.data == nullptr || component.prec < 1 || component.prec > 31 ||
        static_cast<size_t>(component.w) * component.h != count) {
      throw DecodeError("JPEG 2000 with subsampled colours is not supported");
    }
    for (size_t i = 0; i < count; ++i) {
      const uint8_t value = SampleOf(component, i);
      if (colours == 3) picture.pixels[i * 3 + c] = value;
      if (colours == 1)
        std::fill_n(picture.pixels.begin() + static_cast<std::ptrdiff_t>(i) * 3, 3, value);
    }
  }
  return picture;
}

}  // namespace onnxd::image
