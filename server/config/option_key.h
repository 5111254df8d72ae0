// OptionKey: one key of a configuration, where it stands in a file and how text sets it.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/str_cat.h"

namespace onnxd {

template <typename Options>
struct OptionKey {
  std::string section;  // empty: the key stands at the top
  std::string key;
  std::string unit;  // "bytes", "s", "" ...
  // kInvalidArgument says what the value must be.
  std::function<Status(Options&, const std::string& text)> set;
  std::function<std::string(const Options&)> get;
  bool is_list = false;     // a YAML list stands for its parts separated by commas
  bool takes_null = false;  // the text "null" may be YAML's null

  // The same key of a part of `Whole`.
  template <typename Whole>
  OptionKey<Whole> Within(Options Whole::*part, std::string section_name) const {
    return {
        std::move(section_name),
        key,
        unit,
        [part, set = set](Whole& whole, const std::string& text) { return set(whole.*part, text); },
        [part, get = get](const Whole& whole) { return get(whole.*part); },
        is_list,
        takes_null};
  }
};

// A whole decimal number; no sign tricks, no octal, no exponent.
Result<int64_t> ParseNumber(const std::string& text, int64_t low, int64_t high);

template <typename Options>
OptionKey<Options> NumberKey(std::string key, int64_t Options::*field, int64_t low, int64_t high,
                             std::string unit = "") {
  return {"", std::move(key), std::move(unit),
          [=](Options& options, const std::string& text) -> Status {
            ONNXD_ASSIGN_OR_RETURN(options.*field, ParseNumber(text, low, high));
            return Status::Ok();
          },
          [=](const Options& options) { return StrCat(options.*field); }};
}

// Any text, or one of `allowed`.
template <typename Options>
OptionKey<Options> TextKey(std::string key, std::string Options::*field,
                           std::set<std::string> allowed = {}) {
  const bool takes_null = allowed.contains("null");
  return {"",
          std::move(key),
          "",
          [=](Options& options, const std::string& text) -> Status {
            if (!allowed.empty() && !allowed.contains(text)) {
              return InvalidArgument(
                  StrCat("'", text.substr(0, 64), "' is not one of ", StrJoin(allowed, ", ")));
            }
            options.*field = text;
            return Status::Ok();
          },
          [=](const Options& options) { return options.*field; },
          false,
          takes_null};
}

// Parts separated by commas.
template <typename Options>
OptionKey<Options> ListKey(std::string key, std::string Options::*field) {
  OptionKey<Options> list = TextKey(std::move(key), field);
  list.is_list = true;
  return list;
}

// Whole numbers separated by commas, ascending.
template <typename Options>
OptionKey<Options> NumbersKey(std::string key, std::vector<int64_t> Options::*field, int64_t low,
                              int64_t high);

template <typename Options>
OptionKey<Options> SwitchKey(std::string key, bool Options::*field) {
  return {
      "", std::move(key), "",
      [=](Options& options, const std::string& text) -> Status {
        if (text != "true" && text != "false") {
          return InvalidArgument(StrCat("'", text.substr(0, 64), "' is neither true nor false"));
        }
        options.*field = text == "true";
        return Status::Ok();
      },
      [=](const Options& options) -> std::string { return options.*field ? "true" : "false"; }};
}

// `text` as ascending numbers; kInvalidArgument says what is wrong.
Result<std::vector<int64_t>> ParseAscending(const std::string& text, int64_t low, int64_t high);

template <typename Options>
OptionKey<Options> NumbersKey(std::string key, std::vector<int64_t> Options::*field, int64_t low,
                              int64_t high) {
  return {"",
          std::move(key),
          "",
          [=](Options& options, const std::string& text) -> Status {
            ONNXD_ASSIGN_OR_RETURN(options.*field, ParseAscending(text, low, high));
            return Status::Ok();
          },
          [=](const Options& options) { return StrJoin(options.*field, ","); },
          true};
}

}  // namespace onnxd
