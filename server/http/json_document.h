// A JSON text that is read once, from its begin to its end (simdjson On-Demand): values are checked
// as they are reached, so whoever reads must reach all of them.
#pragma once

#include <simdjson.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "server/http/http_message.h"

namespace onnxd {

using JsonValue = simdjson::ondemand::value;
using JsonObject = simdjson::ondemand::object;
using JsonArray = simdjson::ondemand::array;

// Values and texts refer to it; one thread.
class JsonDocument {
 public:
  explicit JsonDocument(size_t text_bytes);
  ~JsonDocument();
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  // `text` must live as long. Memory: 4 bytes for each of the text, and a copy of it where fewer
  // than HttpBody::kPadding bytes may be read behind it. kInvalidArgument: not UTF-8, or malformed
  // as a whole.
  static Result<std::unique_ptr<JsonDocument>> Parse(const HttpBody& text);

  // The object that the text is, at its begin: what was read before is read again, and texts that
  // were read are lost. kInvalidArgument: it is something else.
  Result<JsonObject> Root();
  // What must hold once the object was read: nothing follows it.
  Status CheckEnd();

 private:
  simdjson::padded_string copy_;
  std::unique_ptr<simdjson::ondemand::parser> parser_;
  simdjson::ondemand::document document_;
};

// OK for SUCCESS; else kInvalidArgument, or kUnavailable where memory was refused.
Status JsonStatus(simdjson::error_code error);

// The keys of one object.
class JsonKeys {
 public:
  // kInvalidArgument: it was there before. Objects with a repeated key mean different things to
  // different readers.
  Status Add(std::string_view key);

 private:
  std::vector<std::string_view> few_;
  std::unordered_set<std::string_view> many_;
};

// Calls visit(std::string_view key, JsonValue value) for each field until it fails.
template <typename Visit>
Status ForEachField(JsonObject object, Visit visit) {
  JsonKeys keys;
  for (auto entry : object) {
    simdjson::ondemand::field field;
    ONNXD_RETURN_IF_ERROR(JsonStatus(std::move(entry).get(field)));
    std::string_view key;
    ONNXD_RETURN_IF_ERROR(JsonStatus(field.unescaped_key().get(key)));
    ONNXD_RETURN_IF_ERROR(keys.Add(key));
    ONNXD_RETURN_IF_ERROR(visit(key, field.value()));
  }
  return Status::Ok();
}

// Calls visit(JsonValue element) for each element until it fails.
template <typename Visit>
Status ForEachElement(JsonArray array, Visit visit) {
  for (auto entry : array) {
    JsonValue element;
    if (const auto error = std::move(entry).get(element)) [[unlikely]]
      return JsonStatus(error);
    ONNXD_RETURN_IF_ERROR(visit(element));
  }
  return Status::Ok();
}

// Reads `text`, an object, as ForEachField does; to its end.
template <typename Visit>
Status ReadJsonObject(const HttpBody& text, Visit visit) {
  ONNXD_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(text));
  ONNXD_ASSIGN_OR_RETURN(const JsonObject root, document->Root());
  ONNXD_RETURN_IF_ERROR(ForEachField(root, std::move(visit)));
  return document->CheckEnd();
}

// The value of the field at `index`, of an object that was read before.
Result<JsonValue> FieldAt(JsonObject& object, int64_t index);

// A value that is none can still be read.
bool IsNull(JsonValue& value);

// Reads a value of no meaning: malformed ones, and nesting deeper than `depth`, are refused.
Status CheckIgnored(JsonValue value, int64_t depth);

}  // namespace onnxd
