// What the parts of a tokenizer.json are read with.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/str_cat.h"
#include "runtime/text/vocabulary.h"

namespace onnxd {

using JsonElement = simdjson::dom::element;

// The member of an object; nothing where it is missing or null, or `of` is no object.
inline std::optional<JsonElement> Member(JsonElement of, std::string_view name) {
  JsonElement value;
  if (!of.is_object() || of[name].get(value) != simdjson::SUCCESS || value.is_null())
    return std::nullopt;
  return value;
}

template <typename T>
std::optional<T> As(std::optional<JsonElement> value) {
  T out;
  if (!value || value->get(out) != simdjson::SUCCESS) return std::nullopt;
  return out;
}

inline std::string TextOf(JsonElement of, std::string_view name, std::string_view fallback = "") {
  return std::string(As<std::string_view>(Member(of, name)).value_or(fallback));
}

inline bool FlagOf(JsonElement of, std::string_view name, bool fallback) {
  return As<bool>(Member(of, name)).value_or(fallback);
}

// Empty where it is no array.
inline std::vector<JsonElement> ItemsOf(std::optional<JsonElement> value) {
  const auto array = As<simdjson::dom::array>(value);
  if (!array) return {};
  return std::vector<JsonElement>(array->begin(), array->end());
}

inline std::string TypeName(JsonElement of) { return TextOf(of, "type"); }

class JsonObject {
 public:
  // `name`: as the message calls it when it is no object. Whole numbers of more than 64 bits are read
  // as real ones.
  Status Parse(std::string_view json, std::string_view name);
  JsonElement root() const { return root_; }

 private:
  simdjson::dom::parser parser_;
  JsonElement root_;
};

inline Status CheckTokenNumber(int64_t id, std::string_view token) {
  constexpr int64_t kMost = int64_t{1} << 26;
  if (id >= 0 && id < kMost) return Status::Ok();
  return InvalidArgument(StrCat("token '", token.substr(0, 100), "' has the number ", id));
}

// {"token": number, ...}
inline Result<std::shared_ptr<Vocabulary>> ParseVocabulary(std::optional<JsonElement> json) {
  const auto entries = As<simdjson::dom::object>(json);
  if (!entries) return InvalidArgument("the vocabulary is no object");
  auto vocabulary = std::make_shared<Vocabulary>();
  for (const auto& [token, value] : *entries) {
    int64_t id = -1;
    if (value.get(id) != simdjson::SUCCESS) {
      return InvalidArgument(StrCat("token '", token, "' has no number"));
    }
    ONNXD_RETURN_IF_ERROR(CheckTokenNumber(id, token));
    vocabulary->Set(std::string(token), id);
  }
  return vocabulary;
}

}  // namespace onnxd
