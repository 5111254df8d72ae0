// Protocol Buffers wire format, read field by field from a ByteSource with 64-bit offsets.
// Source: https://protobuf.dev/programming-guides/encoding/. Nothing is allocated by a length that
// the input announces: every length is checked against the enclosing message first, and what
// callers keep they charge to a LoadBudget.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace onnxd {

// How many bytes of memory reading one file may claim.
class LoadBudget {
 public:
  explicit LoadBudget(int64_t bytes) : remaining_(bytes) {}
  Status Charge(int64_t bytes) {
    remaining_ -= bytes;
    if (remaining_ >= 0) return Status::Ok();
    return ResourceExhausted("reading the file would need more memory than its budget allows");
  }

 private:
  int64_t remaining_;
};

enum class WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct WireField {
  uint32_t number;
  WireType type;
};

// One position in a source, moving forward. Nested messages are read by the same reader: Enter
// returns where the message ends, and the caller loops while AtEnd(end) is false.
class WireReader {
 public:
  WireReader(std::shared_ptr<const ByteSource> source, LoadBudget* budget);

  uint64_t position() const { return position_; }
  uint64_t size() const { return source_->size(); }
  const std::shared_ptr<const ByteSource>& source() const { return source_; }
  LoadBudget& budget() { return *budget_; }

  bool AtEnd(uint64_t end) const { return position_ >= end; }
  // Groups (wire types 3 and 4), field number 0 and over-long varints are kInvalidArgument.
  Result<WireField> NextField(uint64_t end);
  Result<uint64_t> Varint(uint64_t end);
  Result<uint32_t> Fixed32(uint64_t end);
  Result<uint64_t> Fixed64(uint64_t end);
  // Reads the length of a kBytes field; returns the end of its content.
  Result<uint64_t> Enter(uint64_t end);
  // A kBytes field as text, charged to the budget.
  Result<std::string> Text(uint64_t end);
  Status Skip(WireField field, uint64_t end);
  void MoveTo(uint64_t position) { position_ = position; }

  // Appends the numbers of a repeated field, packed or not, charged to the budget.
  Status Varints(WireField field, uint64_t end, std::vector<int64_t>& out);
  Status Fixed32s(WireField field, uint64_t end, std::vector<uint32_t>& out);
  Status Fixed64s(WireField field, uint64_t end, std::vector<uint64_t>& out);

  Status Expect(WireField field, WireType type) const;
  Status Malformed(std::string_view what) const;

 private:
  // Makes window_[position_ - window_begin_] valid for up to `length` bytes.
  Status Fill(size_t length, uint64_t end);

  std::shared_ptr<const ByteSource> source_;
  LoadBudget* budget_;
  uint64_t position_ = 0;
  std::vector<unsigned char> window_;
  uint64_t window_begin_ = 0;
};

}  // namespace onnxd
