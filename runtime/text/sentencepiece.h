// Sentencepiece: text to tokens and back, as its model files say. Source: Kudo and Richardson,
// "SentencePiece: A simple and language independent subword tokenizer" (2018), and
// sentencepiece_model.proto (https://github.com/google/sentencepiece).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/text/precompiled_map.h"
#include "runtime/text/prefix_tree.h"
#include "runtime/text/subword_model.h"
#include "runtime/text/unigram.h"
#include "runtime/text/vocabulary.h"

namespace onnxd {

// What a model file says.
struct SentencepieceSpec {
  enum class PieceType {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  enum class ModelType { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };

  std::vector<Piece> pieces;
  ModelType model_type = ModelType::kUnigram;
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  std::string unknown_surface = " \xe2\x81\x87 ";  // what an unknown token reads as
  std::string bos_piece = "<s>", eos_piece = "</s>";
  std::string normalizer_map, denormalizer_map;  // see PrecompiledMap
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;

  // Fails where `bytes` are no such message, have no pieces or no unknown one.
  static Result<SentencepieceSpec> Parse(std::string_view bytes);
};

// Immutable once made; any thread.
class Sentencepiece {
 public:
  static Result<std::shared_ptr<const Sentencepiece>> Make(SentencepieceSpec spec);

  // The tokens, with the bytes of `text` that they come from.
  std::vector<Token> Encode(std::string_view text) const;
  // kInvalidArgument for a number that is no token's.
  Result<std::string> Decode(const std::vector<int64_t>& ids) const;

  int64_t unknown_id() const { return unknown_; }
  int64_t bos_id() const { return bos_; }  // that of the unknown where there is none
  int64_t eos_id() const { return eos_; }

 private:
  using Type = SentencepieceSpec::PieceType;
  // Normalized text, and for each of its bytes, and its end, the byte of the original.
  struct Normalized {
    std::string text;
    std::vector<uint32_t> source;
  };

  Normalized Normalize(std::string_view text) const;
  std::pair<std::string_view, size_t> NormalizedPrefix(std::string_view text, size_t at) const;
  std::vector<Token> EncodeNormalized(std::string_view text) const;
  void EncodePairs(std::string_view text, std::vector<Token>& out) const;
  void SplitUnused(std::string_view text, Token token, std::vector<Token>& out) const;
  void EncodeWords(std::string_view text, std::vector<Token>& out) const;
  int64_t IdOf(std::string_view piece) const;
  Type TypeOf(int64_t id) const { return spec_.pieces[static_cast<size_t>(id)].type; }
  void ReplaceUnknown(std::string_view text, std::vector<Token>& tokens) const;
  std::string Denormalize(const std::string& text) const;

  SentencepieceSpec spec_;
  Vocabulary vocabulary_;
  PrefixTree user_defined_;
  PrecompiledMap map_, back_map_;
  std::unique_ptr<Unigram> unigram_;  // of that model type
  int64_t unknown_ = 0, bos_ = 0, eos_ = 0;
  std::vector<int64_t> bytes_;  // the tokens of bytes; empty: not all are there
};

}  // namespace onnxd
