// A YAML text as values of known keys: one level of sections, one value, list or list of maps a
// key, and nothing that could expand.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

struct YamlKey {
  std::string section, key;  // section empty: at the top
  bool is_list;              // a list of values is given to `set` separated by commas
  bool takes_null;           // null is the text "null"
  std::function<Status(const std::string& text)> set;
};

// A section whose keys are its user's, one value each.
struct YamlSection {
  std::string name;
  std::function<Status(const std::string& key, const std::string& text)> set;
};

// One of a list of maps: its keys with one value or a list, and those that are maps of values.
struct YamlRecord {
  std::map<std::string, std::string> values;  // a list's separated by commas
  std::map<std::string, std::map<std::string, std::string>> maps;
};

// A list of maps, at most kMost.
struct YamlRecords {
  std::string section, key;                      // section empty: at the top
  std::vector<std::string> values, lists, maps;  // the keys of one
  std::function<Status(const YamlRecord& record)> add;
  static constexpr size_t kMost = 256;
};

// All that a text may say.
struct YamlForm {
  std::vector<YamlKey> keys;
  std::vector<YamlSection> open;
  std::vector<YamlRecords> records;
};

// Sets every key that the text names. kInvalidArgument with `name`, line and column: unknown keys
// (with the nearest known one), duplicate keys, anchors, aliases, tags, several documents, values
// that `set` refuses.
Status ApplyYaml(const std::string& text, const std::string& name, const YamlForm& form);

}  // namespace onnxd
