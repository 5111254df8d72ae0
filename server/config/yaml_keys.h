// A YAML text as values of known keys: one level of sections, one value or list a key, and nothing
// that could expand.
#pragma once

#include <functional>
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

// Sets every key that the text names. kInvalidArgument with `name`, line and column: unknown keys
// (with the nearest known one), duplicate keys, anchors, aliases, tags, several documents, values
// that `set` refuses.
Status ApplyYaml(const std::string& text, const std::string& name, const std::vector<YamlKey>& keys,
                 const std::vector<YamlSection>& open = {});

}  // namespace onnxd
