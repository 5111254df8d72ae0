#include "server/http/generation_parameters.h"

#include <charconv>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using Options = GenerationOptions;

constexpr size_t kMostBiases = 1024;

Status ReadStop(JsonValue value, Options& options) {
  std::string_view text;
  if (value.get_string().get(text) == simdjson::SUCCESS) return AddStop(text, options);
  return InvalidArgument("stop must be a string, or an array of them");
}

Status ReadStops(JsonValue value, Options& options) {
  JsonArray array;
  options.stops.clear();
  if (value.get_array().get(array) != simdjson::SUCCESS) return ReadStop(value, options);
  return ForEachElement(array, [&](JsonValue one) { return ReadStop(one, options); });
}

// {"50256": -100}
Status ReadBiases(JsonValue value, Options& options) {
  JsonObject object;
  if (value.get_object().get(object) != simdjson::SUCCESS) {
    return InvalidArgument("logit_bias must be an object of tokens and numbers");
  }
  return ForEachField(object, [&](std::string_view key, JsonValue bias) {
    int64_t token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    double number = 0;
    const bool reads = error == std::errc() && end == key.data() + key.size() && token >= 0 &&
                       bias.get_double().get(number) == simdjson::SUCCESS;
    if (!reads || options.logit_bias.size() == kMostBiases) {
      return InvalidArgument(
          StrCat("logit_bias must have ", kMostBiases, " tokens at most, each with a number"));
    }
    options.logit_bias[token] = number;
    return Status::Ok();
  });
}

Status ReadSeed(JsonValue value, Options& options) {
  int64_t seed;
  if (value.get_int64().get(seed) != simdjson::SUCCESS) {
    return InvalidArgument("seed must be a whole number");
  }
  options.seed = static_cast<uint64_t>(seed);
  return Status::Ok();
}

}  // namespace

Result<bool> ReadGenerationParameter(std::string_view key, JsonValue value, Options& options) {
  auto* const number = NumberOption(options, key);
  auto* const count = CountOption(options, key);
  bool* const flag = SwitchOption(options, key);
  const bool is_other = key == "seed" || key == "stop" || key == "logit_bias";
  if (number == nullptr && count == nullptr && flag == nullptr && !is_other) return false;
  if (IsNull(value)) return true;
  Status status;
  if (number != nullptr) {
    if (value.get_double().get(number->emplace()) != simdjson::SUCCESS) {
      status = InvalidArgument(StrCat(key, " must be a number"));
    }
  } else if (count != nullptr) {
    if (value.get_int64().get(count->emplace()) != simdjson::SUCCESS) {
      status = InvalidArgument(StrCat(key, " must be a whole number"));
    }
  } else if (flag != nullptr) {
    if (value.get_bool().get(*flag) != simdjson::SUCCESS) {
      status = InvalidArgument(StrCat(key, " must be true or false"));
    }
  } else if (key == "seed") {
    status = ReadSeed(value, options);
  } else if (key == "stop") {
    status = ReadStops(value, options);
  } else {
    status = ReadBiases(value, options);
  }
  if (!status.ok()) return status;
  return true;
}

}  // namespace onnxd
