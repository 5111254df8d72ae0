#include "server/inference/generation_options.h"

#include <algorithm>
#include <iterator>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using Options = GenerationOptions;

template <typename Field>
struct Named {
  std::string_view name;
  Field Options::*field;
};

constexpr Named<std::optional<double>> kNumbers[] = {
    {"temperature", &Options::temperature},
    {"top_p", &Options::top_p},
    {"min_p", &Options::min_p},
    {"repetition_penalty", &Options::repetition_penalty},
    {"presence_penalty", &Options::presence_penalty},
    {"frequency_penalty", &Options::frequency_penalty},
};
constexpr Named<std::optional<int64_t>> kCounts[] = {
    {"max_tokens", &Options::max_tokens},
    {"max_completion_tokens", &Options::max_tokens},
    {"max_new_tokens", &Options::max_tokens},
    {"top_k", &Options::top_k},
};
constexpr Named<bool> kSwitches[] = {
    {"ignore_eos", &Options::ignores_stop_tokens},
    {"skip_special_tokens", &Options::skips_special_tokens},
};

template <typename Field, size_t kCount>
Field* Find(const Named<Field> (&fields)[kCount], Options& options, std::string_view name) {
  const auto* const found = std::find_if(std::begin(fields), std::end(fields),
                                         [&](const auto& one) { return one.name == name; });
  return found == std::end(fields) ? nullptr : &(options.*found->field);
}

}  // namespace

std::optional<double>* NumberOption(Options& options, std::string_view name) {
  return Find(kNumbers, options, name);
}

std::optional<int64_t>* CountOption(Options& options, std::string_view name) {
  return Find(kCounts, options, name);
}

bool* SwitchOption(Options& options, std::string_view name) {
  return Find(kSwitches, options, name);
}

Status AddStop(std::string_view text, Options& options) {
  constexpr size_t kMostStops = 16, kMostStopBytes = 256;
  if (text.empty() || text.size() > kMostStopBytes || options.stops.size() == kMostStops) {
    return InvalidArgument(
        StrCat("stop must be ", kMostStops, " strings of 1 to ", kMostStopBytes, " bytes at most"));
  }
  options.stops.emplace_back(text);
  return Status::Ok();
}

}  // namespace onnxd
