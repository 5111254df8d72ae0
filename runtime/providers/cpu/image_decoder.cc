// ImageDecoder-20; DecodeImage and EncodeImage of onnxruntime-extensions. The codecs are in a
// library of their own (runtime/image_decoder), opened here on the first image.
#include "runtime/image_decoder/image_decoder.h"

#include <dlfcn.h>

#include <algorithm>
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
  OnnxdEncodeImage encode = nullptr;
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
      library.encode = reinterpret_cast<OnnxdEncodeImage>(dlsym(handle, "onnxd_encode_image"));
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

const Library& Codecs() {
  static const Library library = OpenLibrary();
  return library;
}

// What the codecs need before they are asked for anything.
Status CheckCodecs(const Node& node, bool there) {
  if (there) return Status::Ok();
  return Unimplemented(
      StrCat(Describe(node), ": no image codecs in this installation: ", Codecs().error));
}

enum class Channels { kRgb, kBgr, kGrey };

// encoded uint8 [bytes] -> uint8 [height, width, channels]
Result<Values> Decode(const Node& node, std::span<const Value> inputs, Channels order) {
  const Tensor& encoded = inputs[0].tensor();
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat(Describe(node), ": ", why));
  };
  if (encoded.shape().rank() != 1) return fail("the encoded image must have rank 1");
  if (encoded.ElementCount() > kMaxBytes) {
    return ResourceExhausted(
        StrCat(Describe(node), ": ", encoded.ElementCount(), " bytes, the limit is ", kMaxBytes));
  }
  ONNXD_RETURN_IF_ERROR(CheckCodecs(node, Codecs().decode != nullptr));
  OnnxdImage image{};
  char error[200] = "";
  if (Codecs().decode(encoded.data<uint8_t>(), encoded.bytes(), kMaxPixels, &image, error,
                      sizeof error) != 0) {
    return fail(StrCat("the image does not decode: ", EscapeControl(error)));
  }
  const std::unique_ptr<uint8_t, void (*)(void*)> pixels(image.pixels, std::free);
  const int64_t channels = order == Channels::kGrey ? 1 : 3;
  ONNXD_ASSIGN_OR_RETURN(
      Tensor out, Tensor::Create(DataType::kUint8, Shape{image.height, image.width, channels}));
  auto* to = out.mutable_data<uint8_t>();
  for (int64_t i = 0; i < image.height * image.width; ++i) {
    const uint8_t* rgb = pixels.get() + i * 3;
    if (channels == 1) {
      to[i] = Grey(rgb);
      continue;
    }
    for (int64_t c = 0; c < 3; ++c) to[i * 3 + c] = rgb[order == Channels::kBgr ? 2 - c : c];
  }
  return Values{std::move(out)};
}

// uint8 [height, width, 3] -> encoded uint8 [bytes]
Result<Values> Encode(const Node& node, std::span<const Value> inputs, bool jpeg, Channels order) {
  const Tensor& x = inputs[0].tensor();
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat(Describe(node), ": ", why));
  };
  const Shape& shape = x.shape();
  if (shape.rank() != 3 || shape[2] != 3) {
    return fail(StrCat("expected an image [height, width, 3], got ", shape.ToString()));
  }
  if (x.ElementCount() / 3 > kMaxPixels) {
    return ResourceExhausted(
        StrCat(Describe(node), ": ", shape.ToString(), ", the limit is ", kMaxPixels, " pixels"));
  }
  ONNXD_RETURN_IF_ERROR(CheckCodecs(node, Codecs().encode != nullptr));
  const auto elements = x.elements<uint8_t>();
  std::vector<uint8_t> turned;
  if (order == Channels::kBgr) {
    turned.assign(elements.begin(), elements.end());
    for (size_t i = 0; i < turned.size(); i += 3) std::swap(turned[i], turned[i + 2]);
  }
  OnnxdEncoded encoded{};
  char error[200] = "";
  if (Codecs().encode(turned.empty() ? elements.data() : turned.data(), shape[0], shape[1],
                      jpeg ? 1 : 0, &encoded, error, sizeof error) != 0) {
    return fail(StrCat("the image cannot be encoded: ", EscapeControl(error)));
  }
  const std::unique_ptr<uint8_t, void (*)(void*)> bytes(encoded.bytes, std::free);
  ONNXD_ASSIGN_OR_RETURN(
      Tensor out, Tensor::Create(DataType::kUint8, Shape{static_cast<int64_t>(encoded.size)}));
  std::copy_n(bytes.get(), encoded.size, out.mutable_data<uint8_t>());
  return Values{std::move(out)};
}

// "bgr" or "rgb", as onnxruntime-extensions spell it.
Result<Channels> ColorSpace(const Node& node) {
  const std::string space = node.attributes.String("color_space", "bgr");
  if (space == "bgr") return Channels::kBgr;
  if (space == "rgb") return Channels::kRgb;
  return InvalidArgument(StrCat("color_space '", space, "' is neither bgr nor rgb"));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeImageDecoder(const KernelInfo& info) {
  const std::string format = info.node.attributes.String("pixel_format", "RGB");
  if (format != "RGB" && format != "BGR" && format != "Grayscale") {
    return InvalidArgument(StrCat(Describe(info.node), ": pixel_format '", format, "'"));
  }
  const Channels order = format == "RGB"   ? Channels::kRgb
                         : format == "BGR" ? Channels::kBgr
                                           : Channels::kGrey;
  return MakeEagerKernel([order](const Node& node, std::span<const Value> inputs) {
    return Decode(node, inputs, order);
  });
}

Result<std::unique_ptr<Kernel>> MakeDecodeImage(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Channels order, ColorSpace(info.node));
  return MakeEagerKernel([order](const Node& node, std::span<const Value> inputs) {
    return Decode(node, inputs, order);
  });
}

Result<std::unique_ptr<Kernel>> MakeEncodeImage(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Channels order, ColorSpace(info.node));
  const std::string format = info.node.attributes.String("format", "");
  if (format != "jpg" && format != "png") {
    return InvalidArgument(StrCat("format '", format, "' is neither jpg nor png"));
  }
  return MakeEagerKernel(
      [jpeg = format == "jpg", order](const Node& node, std::span<const Value> inputs) {
        return Encode(node, inputs, jpeg, order);
      });
}

}  // namespace onnxd
