// BMP (uncompressed, 8, 24 or 32 bits) and PNM (P1 to P6). Sources: Microsoft's BITMAPINFOHEADER
// and Netpbm's manual pages pbm(5), pgm(5), ppm(5).
#include <algorithm>

#include "runtime/image_decoder/formats.h"

namespace onnxd::image {
namespace {

// Reads with bounds.
class Reader {
 public:
  explicit Reader(Bytes data) : data_(data) {}

  uint8_t Byte(int64_t at) const {
    if (at < 0 || static_cast<uint64_t>(at) >= data_.size()) throw DecodeError("it ends early");
    return data_[static_cast<size_t>(at)];
  }
  int64_t Little(int64_t at, int bytes) const {
    int64_t value = 0;
    for (int i = bytes - 1; i >= 0; --i) value = value << 8 | Byte(at + i);
    return value;
  }
  int32_t Signed32(int64_t at) const { return static_cast<int32_t>(Little(at, 4)); }

 private:
  Bytes data_;
};

// A PNM header's numbers, with white space and comments between.
class PnmReader {
 public:
  explicit PnmReader(Bytes data) : reader_(data) {}

  int64_t Number() {
    SkipSpace();
    if (!IsDigit(reader_.Byte(at_))) throw DecodeError("a number is missing");
    int64_t value = 0;
    while (IsDigit(reader_.Byte(at_))) {
      value = value * 10 + (reader_.Byte(at_++) - '0');
      if (value > (1 << 30)) throw DecodeError("a number is too large");
      if (static_cast<uint64_t>(at_) == size_limit_) break;
    }
    return value;
  }
  // P1's digits need no space between.
  int64_t Digit() {
    SkipSpace();
    const uint8_t c = reader_.Byte(at_++);
    if (c != '0' && c != '1') throw DecodeError("a bit is missing");
    return c - '0';
  }
  int64_t Raw(int bytes) {
    int64_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | reader_.Byte(at_++);
    return value;
  }
  void SkipOne() { ++at_; }
  void LimitTo(uint64_t size) { size_limit_ = size; }

 private:
  static bool IsDigit(uint8_t c) { return c >= '0' && c <= '9'; }
  void SkipSpace() {
    for (;; ++at_) {
      const uint8_t c = reader_.Byte(at_);
      if (c == '#') {
        while (reader_.Byte(at_) != '\n') ++at_;
      } else if (c != ' ' && (c < '\t' || c > '\r')) {
        return;
      }
    }
  }

  Reader reader_;
  int64_t at_ = 2;
  uint64_t size_limit_ = ~uint64_t{0};
};

}  // namespace

Picture DecodeBmp(Bytes data, int64_t max_pixels) {
  const Reader reader(data);
  const int64_t begin = reader.Little(10, 4), header = reader.Little(14, 4);
  const int64_t width = reader.Signed32(18), stated = reader.Signed32(22);
  const int64_t bits = reader.Little(28, 2), compression = reader.Little(30, 4);
  if (header < 40 || (bits != 8 && bits != 24 && bits != 32) ||
      (compression != 0 && !(compression == 3 && bits == 32))) {
    throw DecodeError("a BMP of this kind is not supported");
  }
  const int64_t height = stated < 0 ? -stated : stated;  // negative: the first row is the top one
  Picture picture = MakePicture(height, width, max_pixels);
  const int64_t stride = (width * bits + 31) / 32 * 4;
  for (int64_t y = 0; y < height; ++y) {
    const int64_t row = begin + (stated < 0 ? y : height - 1 - y) * stride;
    for (int64_t x = 0; x < width; ++x) {
      const int64_t pixel =
          bits == 8 ? 14 + header + reader.Byte(row + x) * 4 : row + x * (bits / 8);
      uint8_t* to = picture.pixels.data() + (y * width + x) * 3;
      for (int channel = 0; channel < 3; ++channel) to[channel] = reader.Byte(pixel + 2 - channel);
    }
  }
  return picture;
}

Picture DecodePnm(Bytes data, int64_t max_pixels) {
  const int kind = data[1] - '0';
  PnmReader reader(data);
  reader.LimitTo(data.size());
  const int64_t width = reader.Number(), height = reader.Number();
  const bool bitmap = kind == 1 || kind == 4, colour = kind == 3 || kind == 6;
  const int64_t largest = bitmap ? 1 : reader.Number();
  if (largest < 1 || largest > 65535) throw DecodeError("the largest value is out of range");
  if (kind >= 4) reader.SkipOne();
  Picture picture = MakePicture(height, width, max_pixels);
  const auto sample = [&]() -> uint8_t {
    const int64_t value = kind < 4 ? reader.Number() : reader.Raw(largest < 256 ? 1 : 2);
    if (value > largest) throw DecodeError("a value is beyond the largest");
    return static_cast<uint8_t>((value * 255 + largest / 2) / largest);
  };
  for (int64_t y = 0; y < height; ++y) {
    int64_t byte = 0;
    for (int64_t x = 0; x < width; ++x) {
      uint8_t* to = picture.pixels.data() + (y * width + x) * 3;
      if (bitmap) {  // 1 is black
        if (kind == 4 && x % 8 == 0) byte = reader.Raw(1);
        const int64_t bit = kind == 1 ? reader.Digit() : byte >> (7 - x % 8) & 1;
        std::fill_n(to, 3, bit != 0 ? 0 : 255);
      } else if (colour) {
        for (int channel = 0; channel < 3; ++channel) to[channel] = sample();
      } else {
        std::fill_n(to, 3, sample());
      }
    }
  }
  return picture;
}

}  // namespace onnxd::image
