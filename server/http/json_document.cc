#include "server/http/json_document.h"

#include <algorithm>
#include <atomic>

#include "runtime/base/str_cat.h"

namespace onnxd {

static_assert(HttpBody::kPadding >= simdjson::SIMDJSON_PADDING);

namespace {

constexpr size_t kFewKeys = 16;

// Parsers for the next text: their memory has been written to before, which new memory has to be
// by the kernel first. One of each thread for short texts, one of all threads for others; memory is
// 5 times the text.
using Parser = simdjson::ondemand::parser;
constexpr size_t kShortText = 256 << 10, kMostSpareBytes = 2 << 20;
thread_local std::unique_ptr<Parser> short_spare;
std::atomic<Parser*> long_spare = nullptr;

std::unique_ptr<Parser> TakeParser(size_t text_bytes) {
  std::unique_ptr<Parser> parser = text_bytes <= kShortText
                                       ? std::move(short_spare)
                                       : std::unique_ptr<Parser>(long_spare.exchange(nullptr));
  return parser != nullptr ? std::move(parser) : std::make_unique<Parser>();
}

void KeepParser(std::unique_ptr<Parser> parser) {
  if (parser->capacity() <= kShortText) {
    short_spare = std::move(parser);
  } else if (parser->capacity() <= kMostSpareBytes) {
    parser.reset(long_spare.exchange(parser.release()));
  }
}

Status CheckIgnoredScalar(JsonValue value, simdjson::ondemand::json_type type) {
  using simdjson::ondemand::json_type;
  switch (type) {
    case json_type::string: {
      std::string_view text;
      return JsonStatus(value.get_string().get(text));
    }
    case json_type::number: {
      double number;
      return JsonStatus(value.get_double().get(number));
    }
    case json_type::boolean: {
      bool flag;
      return JsonStatus(value.get_bool().get(flag));
    }
    default: {
      bool null = false;
      ONNXD_RETURN_IF_ERROR(JsonStatus(value.is_null().get(null)));
      return null ? Status::Ok() : JsonStatus(simdjson::N_ATOM_ERROR);
    }
  }
}

}  // namespace

Status JsonStatus(simdjson::error_code error) {
  if (error == simdjson::SUCCESS) return Status::Ok();
  if (error == simdjson::MEMALLOC) return Unavailable("no memory for the JSON body");
  return InvalidArgument(StrCat("malformed JSON: ", simdjson::error_message(error)));
}

JsonDocument::JsonDocument(size_t text_bytes) : parser_(TakeParser(text_bytes)) {}

JsonDocument::~JsonDocument() { KeepParser(std::move(parser_)); }

Result<std::unique_ptr<JsonDocument>> JsonDocument::Parse(const HttpBody& body) {
  auto document = std::make_unique<JsonDocument>(body.bytes.size());
  std::string_view text = body.bytes;
  if (text.empty()) return InvalidArgument("the body is empty, expected JSON");
  if (text.starts_with("\xef\xbb\xbf")) {
    return InvalidArgument("malformed JSON: it begins with a byte order mark");
  }
  size_t padding = body.readable_after;
  if (padding < simdjson::SIMDJSON_PADDING) {
    document->copy_ = simdjson::padded_string(text);
    if (document->copy_.data() == nullptr) return Unavailable("no memory for the JSON body");
    text = document->copy_;
    padding = simdjson::SIMDJSON_PADDING;
  }
  const auto error = document->parser_->iterate(text.data(), text.size(), text.size() + padding)
                         .get(document->document_);
  if (error == simdjson::CAPACITY) return ResourceExhausted("the JSON body is too large");
  ONNXD_RETURN_IF_ERROR(JsonStatus(error));
  return document;
}

Result<JsonObject> JsonDocument::Root() {
  document_.rewind();
  JsonObject object;
  const auto error = document_.get_object().get(object);
  if (error == simdjson::INCORRECT_TYPE) {
    return InvalidArgument("the body must be a JSON object");
  }
  ONNXD_RETURN_IF_ERROR(JsonStatus(error));
  return object;
}

Status JsonDocument::CheckEnd() {
  if (document_.current_location().error() == simdjson::OUT_OF_BOUNDS) return Status::Ok();
  return InvalidArgument("malformed JSON: more follows after its end");
}

Status JsonKeys::Add(std::string_view key) {
  bool repeated;
  if (few_.size() < kFewKeys) {
    repeated = std::find(few_.begin(), few_.end(), key) != few_.end();
    few_.push_back(key);
  } else {
    if (many_.empty()) many_.insert(few_.begin(), few_.end());
    repeated = !many_.insert(key).second;
  }
  if (!repeated) return Status::Ok();
  return InvalidArgument(StrCat("the key \"", key.substr(0, 64), "\" stands twice in one object"));
}

Result<JsonValue> FieldAt(JsonObject& object, int64_t index) {
  ONNXD_RETURN_IF_ERROR(JsonStatus(object.reset().error()));
  for (auto entry : object) {
    simdjson::ondemand::field field;
    ONNXD_RETURN_IF_ERROR(JsonStatus(std::move(entry).get(field)));
    if (index-- == 0) return JsonValue(field.value());
  }
  return Internal("a field of an object is gone");
}

bool IsNull(JsonValue& value) {
  bool is_null = false;
  return value.is_null().get(is_null) == simdjson::SUCCESS && is_null;
}

Status CheckIgnored(JsonValue value, int64_t depth) {
  using simdjson::ondemand::json_type;
  json_type type = json_type::null;
  ONNXD_RETURN_IF_ERROR(JsonStatus(value.type().get(type)));
  if (type != json_type::object && type != json_type::array) {
    return CheckIgnoredScalar(value, type);
  }
  if (depth == 0) return InvalidArgument("the JSON is nested too deeply");
  if (type == json_type::array) {
    JsonArray array;
    ONNXD_RETURN_IF_ERROR(JsonStatus(value.get_array().get(array)));
    return ForEachElement(array, [&](JsonValue child) { return CheckIgnored(child, depth - 1); });
  }
  JsonObject object;
  ONNXD_RETURN_IF_ERROR(JsonStatus(value.get_object().get(object)));
  return ForEachField(
      object, [&](std::string_view, JsonValue child) { return CheckIgnored(child, depth - 1); });
}

}  // namespace onnxd
