#include "runtime/base/wire_reader.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {
constexpr size_t kWindowBytes = 64 * 1024;
}

WireReader::WireReader(std::shared_ptr<const ByteSource> source, LoadBudget* budget)
    : source_(std::move(source)), budget_(budget) {}

Status WireReader::Malformed(std::string_view what) const {
  return InvalidArgument(StrCat("not a valid protobuf message: ", what, " at byte ", position_));
}

Status WireReader::Fill(size_t length, uint64_t end) {
  if (end - position_ < length) return Malformed("the message is truncated");
  if (position_ >= window_begin_ && position_ + length <= window_begin_ + window_.size()) {
    return Status::Ok();
  }
  const auto wanted =
      static_cast<size_t>(std::min<uint64_t>(std::max(length, kWindowBytes), size() - position_));
  window_.resize(wanted);
  window_begin_ = position_;
  return source_->ReadAt(position_, window_.data(), wanted);
}

Result<uint64_t> WireReader::Varint(uint64_t end) {
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    ONNXD_RETURN_IF_ERROR(Fill(1, end));
    const uint64_t byte = window_[position_ - window_begin_];
    ++position_;
    if (shift < 64) value |= (byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return Malformed("a number is longer than ten bytes");
}

Result<WireField> WireReader::NextField(uint64_t end) {
  ONNXD_ASSIGN_OR_RETURN(const uint64_t key, Varint(end));
  const uint64_t number = key >> 3;
  const auto type = static_cast<int>(key & 7);
  if (number == 0 || number > 0x1fffffff) return Malformed("a field has an impossible number");
  if (type != 0 && type != 1 && type != 2 && type != 5) {
    return Malformed("a field has an unsupported wire type");
  }
  return WireField{static_cast<uint32_t>(number), static_cast<WireType>(type)};
}

Result<uint32_t> WireReader::Fixed32(uint64_t end) {
  ONNXD_RETURN_IF_ERROR(Fill(4, end));
  uint32_t value;
  std::memcpy(&value, window_.data() + (position_ - window_begin_), 4);
  position_ += 4;
  return value;
}

Result<uint64_t> WireReader::Fixed64(uint64_t end) {
  ONNXD_RETURN_IF_ERROR(Fill(8, end));
  uint64_t value;
  std::memcpy(&value, window_.data() + (position_ - window_begin_), 8);
  position_ += 8;
  return value;
}

Result<uint64_t> WireReader::Enter(uint64_t end) {
  ONNXD_ASSIGN_OR_RETURN(const uint64_t length, Varint(end));
  if (length > end - position_) return Malformed("a length points beyond the end");
  return position_ + length;
}

Result<std::string> WireReader::Text(uint64_t end) {
  ONNXD_ASSIGN_OR_RETURN(const uint64_t stop, Enter(end));
  const size_t length = stop - position_;
  ONNXD_RETURN_IF_ERROR(budget_->Charge(static_cast<int64_t>(length) + 64));
  std::string text(length, '\0');
  if (length <= kWindowBytes) {
    ONNXD_RETURN_IF_ERROR(Fill(length, end));
    if (length > 0) std::memcpy(text.data(), window_.data() + (position_ - window_begin_), length);
  } else {
    ONNXD_RETURN_IF_ERROR(source_->ReadAt(position_, text.data(), length));
  }
  position_ = stop;
  return text;
}

Status WireReader::Skip(WireField field, uint64_t end) {
  switch (field.type) {
    case WireType::kVarint:
      return Varint(end).status();
    case WireType::kFixed64:
      return Fixed64(end).status();
    case WireType::kFixed32:
      return Fixed32(end).status();
    case WireType::kBytes: {
      ONNXD_ASSIGN_OR_RETURN(const uint64_t stop, Enter(end));
      position_ = stop;
      return Status::Ok();
    }
  }
  return Status::Ok();
}

Status WireReader::Expect(WireField field, WireType type) const {
  if (field.type == type) return Status::Ok();
  return Malformed(StrCat("field ", field.number, " has the wrong wire type"));
}

Status WireReader::Varints(WireField field, uint64_t end, std::vector<int64_t>& out) {
  uint64_t stop = end;
  const bool packed = field.type == WireType::kBytes;
  if (packed) {
    ONNXD_ASSIGN_OR_RETURN(stop, Enter(end));
  } else {
    ONNXD_RETURN_IF_ERROR(Expect(field, WireType::kVarint));
  }
  do {
    if (packed && position_ == stop) break;
    ONNXD_ASSIGN_OR_RETURN(const uint64_t value, Varint(stop));
    ONNXD_RETURN_IF_ERROR(budget_->Charge(8));
    out.push_back(static_cast<int64_t>(value));
  } while (packed);
  return Status::Ok();
}

Status WireReader::Fixed32s(WireField field, uint64_t end, std::vector<uint32_t>& out) {
  uint64_t stop = end;
  const bool packed = field.type == WireType::kBytes;
  if (packed) {
    ONNXD_ASSIGN_OR_RETURN(stop, Enter(end));
  } else {
    ONNXD_RETURN_IF_ERROR(Expect(field, WireType::kFixed32));
  }
  do {
    if (packed && position_ == stop) break;
    ONNXD_ASSIGN_OR_RETURN(const uint32_t value, Fixed32(stop));
    ONNXD_RETURN_IF_ERROR(budget_->Charge(4));
    out.push_back(value);
  } while (packed);
  return Status::Ok();
}

Status WireReader::Fixed64s(WireField field, uint64_t end, std::vector<uint64_t>& out) {
  uint64_t stop = end;
  const bool packed = field.type == WireType::kBytes;
  if (packed) {
    ONNXD_ASSIGN_OR_RETURN(stop, Enter(end));
  } else {
    ONNXD_RETURN_IF_ERROR(Expect(field, WireType::kFixed64));
  }
  do {
    if (packed && position_ == stop) break;
    ONNXD_ASSIGN_OR_RETURN(const uint64_t value, Fixed64(stop));
    ONNXD_RETURN_IF_ERROR(budget_->Charge(8));
    out.push_back(value);
  } while (packed);
  return Status::Ok();
}

}  // namespace onnxd
