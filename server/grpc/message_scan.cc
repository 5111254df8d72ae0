#include "server/grpc/message_scan.h"

#include <cstdint>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr int64_t kMaxTensors = 128;
constexpr int64_t kMaxParameters = 64;
constexpr int64_t kMaxStrings = 1 << 20;

// One field after another of a serialized message.
class FieldWalker {
 public:
  explicit FieldWalker(std::string_view message) : rest_(message) {}

  // False at the end or when the bytes are malformed (then `ok` is false).
  bool Next() {
    if (rest_.empty() || !ok) return false;
    const uint64_t key = Varint();
    number = static_cast<uint32_t>(key >> 3);
    content = {};
    switch (key & 7) {
      case 0:
        Varint();
        break;
      case 1:
        Take(8);
        break;
      case 2:
        content = Take(Varint());
        break;
      case 5:
        Take(4);
        break;
      default:
        ok = false;
    }
    return ok;
  }

  uint32_t number = 0;
  std::string_view content;  // of length-delimited fields
  bool ok = true;

 private:
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    ok = false;
    return 0;
  }

  std::string_view Take(uint64_t size) {
    if (!ok || size > rest_.size()) {
      ok = false;
      return {};
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
};

Status Malformed() { return InvalidArgument("the request is no valid protobuf message"); }

Status TooMany(std::string_view what, int64_t limit) {
  return ResourceExhausted(StrCat("the request has more than ", limit, " ", what));
}

// Fields of `number` in `message` must not be more than `limit`.
Status CountFields(std::string_view message, uint32_t number, int64_t limit,
                   std::string_view what) {
  FieldWalker walker(message);
  int64_t count = 0;
  while (walker.Next()) {
    if (walker.number == number && ++count > limit) return TooMany(what, limit);
  }
  return walker.ok ? Status::Ok() : Malformed();
}

}  // namespace

Status ScanInferRequest(std::string_view message) {
  FieldWalker walker(message);
  int64_t inputs = 0, outputs = 0, raws = 0, parameters = 0;
  while (walker.Next()) {
    switch (walker.number) {
      case 4:
        if (++parameters > kMaxParameters) return TooMany("parameters", kMaxParameters);
        break;
      case 5: {
        if (++inputs > kMaxTensors) return TooMany("inputs", kMaxTensors);
        ONNXD_RETURN_IF_ERROR(CountFields(walker.content, 4, kMaxParameters, "parameters"));
        FieldWalker input(walker.content);
        while (input.Next()) {
          if (input.number != 5) continue;
          ONNXD_RETURN_IF_ERROR(CountFields(input.content, 8, kMaxStrings, "BYTES elements"));
        }
        break;
      }
      case 6:
        if (++outputs > kMaxTensors) return TooMany("outputs", kMaxTensors);
        ONNXD_RETURN_IF_ERROR(CountFields(walker.content, 2, kMaxParameters, "parameters"));
        break;
      case 7:
        if (++raws > kMaxTensors) return TooMany("raw contents", kMaxTensors);
        break;
      default:
        break;
    }
  }
  return walker.ok ? Status::Ok() : Malformed();
}

Status ScanPredictRequest(std::string_view message) {
  FieldWalker walker(message);
  int64_t inputs = 0, outputs = 0;
  while (walker.Next()) {
    if (walker.number == 3) {
      if (++inputs > kMaxTensors) return TooMany("inputs", kMaxTensors);
      ONNXD_RETURN_IF_ERROR(CountFields(walker.content, 7, kMaxStrings, "BYTES elements"));
    }
    if (walker.number == 4 && ++outputs > kMaxTensors) return TooMany("outputs", kMaxTensors);
  }
  return walker.ok ? Status::Ok() : Malformed();
}

}  // namespace onnxd
