#include "server/http/generation_parameters.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using Options = GenerationOptions;

constexpr size_t kMostStops = 16, kMostStopBytes = 256, kMostBiases = 1024;

struct NumberParameter {
  std::string_view key;
  std::optional<double> Options::*field;
};
constexpr NumberParameter kNumbers[] = {
    {"temperature", &Options::temperature},
    {"top_p", &Options::top_p},
    {"min_p", &Options::min_p},
    {"repetition_penalty", &Options::repetition_penalty},
    {"presence_penalty", &Options::presence_penalty},
    {"frequency_penalty", &Options::frequency_penalty},
};

struct CountParameter {
  std::string_view key;
  std::optional<int64_t> Options::*field;
};
constexpr CountParameter kCounts[] = {
    {"max_tokens", &Options::max_tokens},
    {"max_completion_tokens", &Options::max_tokens},
    {"max_new_tokens", &Options::max_tokens},
    {"top_k", &Options::top_k},
};

struct SwitchParameter {
  std::string_view key;
  bool Options::*field;
};
constexpr SwitchParameter kSwitches[] = {
    {"ignore_eos", &Options::ignores_stop_tokens},
    {"skip_special_tokens", &Options::skips_special_tokens},
};

// Null: there is none of that key.
template <typename Parameter, size_t kCount>
const Parameter* Find(const Parameter (&parameters)[kCount], std::string_view key) {
  const auto* const found = std::find_if(std::begin(parameters), std::end(parameters),
                                         [&](const Parameter& one) { return one.key == key; });
  return found == std::end(parameters) ? nullptr : found;
}

Status AddStop(JsonValue value, Options& options) {
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS) {
    return InvalidArgument("stop must be a string, or an array of them");
  }
  if (text.empty() || text.size() > kMostStopBytes || options.stops.size() == kMostStops) {
    return InvalidArgument(
        StrCat("stop must be ", kMostStops, " strings of 1 to ", kMostStopBytes, " bytes at most"));
  }
  options.stops.emplace_back(text);
  return Status::Ok();
}

Status ReadStops(JsonValue value, Options& options) {
  JsonArray array;
  options.stops.clear();
  if (value.get_array().get(array) != simdjson::SUCCESS) return AddStop(value, options);
  return ForEachElement(array, [&](JsonValue one) { return AddStop(one, options); });
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
  const auto* const number = Find(kNumbers, key);
  const auto* const count = Find(kCounts, key);
  const auto* const flag = Find(kSwitches, key);
  const bool is_other = key == "seed" || key == "stop" || key == "logit_bias";
  if (number == nullptr && count == nullptr && flag == nullptr && !is_other) return false;
  if (IsNull(value)) return true;
  Status status;
  if (number != nullptr) {
    if (value.get_double().get((options.*number->field).emplace()) != simdjson::SUCCESS) {
      status = InvalidArgument(StrCat(key, " must be a number"));
    }
  } else if (count != nullptr) {
    if (value.get_int64().get((options.*count->field).emplace()) != simdjson::SUCCESS) {
      status = InvalidArgument(StrCat(key, " must be a whole number"));
    }
  } else if (flag != nullptr) {
    if (value.get_bool().get(options.*flag->field) != simdjson::SUCCESS) {
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
