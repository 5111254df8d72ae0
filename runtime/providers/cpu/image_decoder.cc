// ImageDecoder-20. The codecs are in a library of their own (runtime/image_decoder), opened here on
// the first image.
#include "runtime/image_decoder/image_decoder.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "runtime/base/log.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

constexpr int64_t kMaxBytes = int64_t{256} << 20;
constexpr int64_t kMaxPixels = int64_t{1} << 27;
constexpr const char* kLibrary = "libonnxd_image_decoder.so";

struct Library {
  OnnxdDecodeImage decode = nullptr;
  std::string error;
};

// Beside the program, in ../lib of it, or where the system looks.
Library OpenLibrary() {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  Library library;
  for (const std::string& path :
       {(folder / kLibrary).string(), (folder.parent_path() / "lib" / kLibrary).string(),
        std::string(kLibrary)}) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      library.decode = reinterpret_cast<OnnxdDecodeImage>(dlsym(handle, "onnxd_decode_image"));
      break;
    }
    const char* why = dlerror();
    library.error = why == nullptr ? "unknown" : why;
  }
  return library;
}

// Weights of ITU-R BT.601 in 16-bit fixed point, as Pillow converts to "L".
uint8_t Grey(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

// encoded uint8 [bytes] -> uint8 [height, width, channels]
Result<Values> ImageDecoder(const Node& node, std::span<const Value> inputs) {
  const Tensor& encoded = inputs[0].tensor();
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat(Describe(node), ": ", why));
  };
  if (encoded.shape().rank() != 1) return fail("the encoded image must have rank 1");
  if (encoded.ElementCount() > kMaxBytes) {
    return ResourceExhausted(
        StrCat(Describe(node), ": ", encoded.ElementCount(), " bytes, the limit is ", kMaxBytes));
  }
  static const Library library = OpenLibrary();
  if (library.decode == nullptr) {
    return Unimplemented(
        StrCat(Describe(node), ": no image codecs in this installation: ", library.error));
  }
  OnnxdImage image{};
  char error[200] = "";
  if (library.decode(encoded.data<uint8_t>(), encoded.bytes(), kMaxPixels, &image, error,
                     sizeof error) != 0) {
    return fail(StrCat("the image does not decode: ", EscapeControl(error)));
  }
  const std::unique_ptr<uint8_t, void (*)(void*)> pixels(image.pixels, std::free);
  const std::string format = node.attributes.String("pixel_format", "RGB");
  const int64_t channels = format == "Grayscale" ? 1 : 3;
  ONNXD_ASSIGN_OR_RETURN(
      Tensor out, Tensor::Create(DataType::kUint8, Shape{image.height, image.width, channels}));
  auto* to = out.mutable_data<uint8_t>();
  for (int64_t i = 0; i < image.height * image.width; ++i) {
    const uint8_t* rgb = pixels.get() + i * 3;
    if (channels == 1) {
      to[i] = Grey(rgb);
      continue;
    }
    for (int64_t c = 0; c < 3; ++c) to[i * 3 + c] = rgb[format == "BGR" ? 2 - c : c];
  }
  return Values{std::move(out)};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeImageDecoder(const KernelInfo& info) {
  const std::string format = info.node.attributes.String("pixel_format", "RGB");
  if (format != "RGB" && format != "BGR" && format != "Grayscale") {
    return InvalidArgument(StrCat(Describe(info.node), ": pixel_format '", format, "'"));
  }
  return MakeEagerKernel(ImageDecoder);
}

}  // namespace onnxd
