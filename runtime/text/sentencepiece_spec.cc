// sentencepiece_model.proto, of which what decides about tokens is read.
#include <bit>
#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/base/wire_reader.h"
#include "runtime/text/sentencepiece.h"

namespace onnxd {
namespace {

class SpecParser {
 public:
  explicit SpecParser(std::string_view bytes)
      // What is kept is no more than what the bytes say, and a little for each piece.
      : budget_(static_cast<int64_t>(bytes.size()) * 32 + 4096),
        reader_(MemorySource(std::string(bytes), "the sentencepiece model"), &budget_) {}

  Result<SentencepieceSpec> Parse() {
    const uint64_t end = reader_.size();
    while (!reader_.AtEnd(end)) {
      ONNXD_ASSIGN_OR_RETURN(const WireField field, reader_.NextField(end));
      if (field.type == WireType::kBytes && field.number >= 1 && field.number <= 5 &&
          field.number != 4) {
        ONNXD_ASSIGN_OR_RETURN(const uint64_t stop, reader_.Enter(end));
        ONNXD_RETURN_IF_ERROR(field.number == 1   ? ParsePiece(stop)
                              : field.number == 2 ? ParseTrainer(stop)
                                                  : ParseNormalizer(stop, field.number == 5));
      } else {
        ONNXD_RETURN_IF_ERROR(reader_.Skip(field, end));
      }
    }
    if (spec_.pieces.empty()) return InvalidArgument("the sentencepiece model has no pieces");
    for (const auto& piece : spec_.pieces) {
      if (piece.type == SentencepieceSpec::PieceType::kUnknown) return std::move(spec_);
    }
    return InvalidArgument("the sentencepiece model has no unknown piece");
  }

 private:
  Status ParsePiece(uint64_t end) {
    SentencepieceSpec::Piece piece;
    while (!reader_.AtEnd(end)) {
      ONNXD_ASSIGN_OR_RETURN(const WireField field, reader_.NextField(end));
      if (field.number == 1 && field.type == WireType::kBytes) {
        ONNXD_ASSIGN_OR_RETURN(piece.text, reader_.Text(end));
      } else if (field.number == 2 && field.type == WireType::kFixed32) {
        ONNXD_ASSIGN_OR_RETURN(const uint32_t bits, reader_.Fixed32(end));
        piece.score = std::bit_cast<float>(bits);
        if (!std::isfinite(piece.score)) {
          return InvalidArgument(StrCat("piece ", spec_.pieces.size(), " has no finite score"));
        }
      } else if (field.number == 3 && field.type == WireType::kVarint) {
        ONNXD_ASSIGN_OR_RETURN(const uint64_t type, reader_.Varint(end));
        if (type < 1 || type > 6) return InvalidArgument(StrCat("a piece of type ", type));
        piece.type = static_cast<SentencepieceSpec::PieceType>(type);
      } else {
        ONNXD_RETURN_IF_ERROR(reader_.Skip(field, end));
      }
    }
    if (piece.text.empty())
      return InvalidArgument(StrCat("piece ", spec_.pieces.size(), " is empty"));
    spec_.pieces.push_back(std::move(piece));
    return reader_.budget().Charge(sizeof(SentencepieceSpec::Piece) / 8);
  }

  Status ParseTrainer(uint64_t end) {
    while (!reader_.AtEnd(end)) {
      ONNXD_ASSIGN_OR_RETURN(const WireField field, reader_.NextField(end));
      const bool number = field.type == WireType::kVarint;
      const bool text = field.type == WireType::kBytes;
      if (number && field.number == 3) {
        ONNXD_ASSIGN_OR_RETURN(const uint64_t type, reader_.Varint(end));
        if (type < 1 || type > 4) return InvalidArgument(StrCat("model_type ", type));
        spec_.model_type = static_cast<SentencepieceSpec::ModelType>(type);
      } else if (number && (field.number == 24 || field.number == 35)) {
        ONNXD_ASSIGN_OR_RETURN(const uint64_t value, reader_.Varint(end));
        (field.number == 24 ? spec_.treat_whitespace_as_suffix : spec_.byte_fallback) = value != 0;
      } else if (text && (field.number == 44 || field.number == 46 || field.number == 47)) {
        ONNXD_ASSIGN_OR_RETURN(std::string value, reader_.Text(end));
        (field.number == 44   ? spec_.unknown_surface
         : field.number == 46 ? spec_.bos_piece
                              : spec_.eos_piece) = std::move(value);
      } else {
        ONNXD_RETURN_IF_ERROR(reader_.Skip(field, end));
      }
    }
    return Status::Ok();
  }

  Status ParseNormalizer(uint64_t end, bool back) {
    while (!reader_.AtEnd(end)) {
      ONNXD_ASSIGN_OR_RETURN(const WireField field, reader_.NextField(end));
      if (field.number == 2 && field.type == WireType::kBytes) {
        ONNXD_ASSIGN_OR_RETURN((back ? spec_.denormalizer_map : spec_.normalizer_map),
                               reader_.Text(end));
      } else if (!back && field.type == WireType::kVarint && field.number >= 3 &&
                 field.number <= 5) {
        ONNXD_ASSIGN_OR_RETURN(const uint64_t value, reader_.Varint(end));
        (field.number == 3   ? spec_.add_dummy_prefix
         : field.number == 4 ? spec_.remove_extra_whitespaces
                             : spec_.escape_whitespaces) = value != 0;
      } else {
        ONNXD_RETURN_IF_ERROR(reader_.Skip(field, end));
      }
    }
    return Status::Ok();
  }

  LoadBudget budget_;
  WireReader reader_;
  SentencepieceSpec spec_;
};

}  // namespace

Result<SentencepieceSpec> SentencepieceSpec::Parse(std::string_view bytes) {
  return SpecParser(bytes).Parse();
}

}  // namespace onnxd
