#include "server/config/yaml_keys.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// Levenshtein distance, for "did you mean".
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

std::string Nearest(const std::string& name, const std::set<std::string>& known) {
  return *std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return EditDistance(name, a) < EditDistance(name, b);
  });
}

Status At(const std::string& file, const YAML::Mark& mark, const std::string& message) {
  return InvalidArgument(StrCat(file, ":", mark.line + 1, ":", mark.column + 1, ": ", message));
}

// Anchors, aliases and several documents have no use here, and expand without bound.
Status RefuseExpansion(const std::string& text, const std::string& file) {
  size_t line = 1;
  bool content = false;
  for (size_t begin = 0; begin < text.size(); ++line) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const std::string current = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t first = current.find_first_not_of(" \t\r");
    if (first == std::string::npos || current[first] == '#') continue;
    const auto refuse = [&](const char* what) {
      return InvalidArgument(StrCat(file, ":", line, ": ", what, " is not supported here"));
    };
    if (current.starts_with("---") && content) return refuse("a second document");
    const size_t value = current.find_first_not_of(" ", current.find(':') + 1);
    const char lead = current.find(':') == std::string::npos || value == std::string::npos
                          ? current[first]
                          : current[value];
    if (lead == '&' || lead == '*' || lead == '!') return refuse("an anchor, alias or tag");
    content = true;
  }
  return Status::Ok();
}

// "section.key", or the key alone at the top.
std::string FullName(const std::string& section, const std::string& key) {
  return section.empty() ? key : StrCat(section, ".", key);
}

// One value, or the parts of a list separated by commas.
Result<std::string> TextOf(const YAML::Node& node, bool is_list, bool takes_null) {
  if (node.IsScalar()) return node.Scalar();
  if (node.IsNull() && takes_null) return std::string("null");
  if (!is_list) return InvalidArgument("must be one value");
  if (!node.IsSequence()) return InvalidArgument("must be one value or a list of values");
  std::vector<std::string> parts;
  for (const auto& part : node) {
    if (!part.IsScalar()) return InvalidArgument("must be one value or a list of values");
    parts.push_back(part.Scalar());
  }
  return StrJoin(parts, ",");
}

class Reader {
 public:
  Reader(const std::string& file, const YamlForm& form)
      : file_(file), keys_(form.keys), open_(form.open), records_(form.records) {
    for (const YamlSection& section : open_) sections_.insert(section.name);
    for (const YamlKey& key : keys_) AddSection(key.section);
    for (const YamlRecords& records : records_) AddSection(records.section);
  }

  Status Read(const YAML::Node& root) const {
    if (root.IsNull()) return Status::Ok();
    if (!root.IsMap()) return At(file_, root.Mark(), "the file must be a map");
    return ReadMap(root, "");
  }

 private:
  void AddSection(const std::string& section) {
    if (!section.empty()) sections_.insert(section);
  }

  // Calls `read` with the name and the value of each entry.
  template <typename Read>
  Status ForEach(const YAML::Node& map, Read read) const {
    std::set<std::string> seen;
    for (const auto& entry : map) {
      const YAML::Mark mark = entry.first.Mark();
      if (!entry.first.IsScalar()) return At(file_, mark, "a key must be a word");
      const std::string name = entry.first.Scalar();
      if (!seen.insert(name).second) return At(file_, mark, StrCat("'", name, "' stands twice"));
      ONNXD_RETURN_IF_ERROR(read(name, mark, entry.second));
    }
    return Status::Ok();
  }

  Status ReadMap(const YAML::Node& map, const std::string& section) const {
    return ForEach(
        map,
        [&](const std::string& name, const YAML::Mark& mark, const YAML::Node& value) -> Status {
          if (!section.empty() || !sections_.contains(name)) {
            return ReadValue(section, name, mark, value);
          }
          if (value.IsNull()) return Status::Ok();
          if (!value.IsMap()) {
            return At(file_, value.Mark(), StrCat("section '", name, "' must be a map"));
          }
          return ReadMap(value, name);
        });
  }

  Status ReadRecords(const YamlRecords& records, const YAML::Node& list) const {
    const std::string name = FullName(records.section, records.key);
    const auto refuse = [&](const YAML::Mark& mark, const char* what) {
      return At(file_, mark, StrCat("'", name, "': ", what));
    };
    if (list.IsNull()) return Status::Ok();
    if (!list.IsSequence()) return refuse(list.Mark(), "must be a list of maps");
    if (list.size() > YamlRecords::kMost) return refuse(list.Mark(), "has too many");
    for (const auto& node : list) {
      if (!node.IsMap()) return refuse(node.Mark(), "must be a list of maps");
      YamlRecord record;
      ONNXD_RETURN_IF_ERROR(ForEach(
          node, [&](const std::string& key, const YAML::Mark& mark, const YAML::Node& value) {
            return ReadField(records, key, mark, value, record);
          }));
      const Status added = records.add(record);
      if (!added.ok()) return At(file_, node.Mark(), StrCat("'", name, "': ", added.message()));
    }
    return Status::Ok();
  }

  Status ReadField(const YamlRecords& records, const std::string& key, const YAML::Mark& mark,
                   const YAML::Node& value, YamlRecord& record) const {
    const auto has = [&key](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), key) != names.end();
    };
    const std::string name = StrCat(FullName(records.section, records.key), ".", key.substr(0, 64));
    if (has(records.maps)) {
      if (!value.IsMap()) return At(file_, value.Mark(), StrCat("'", name, "': must be a map"));
      auto& map = record.maps[key];
      return ForEach(
          value,
          [&](const std::string& inner, const YAML::Mark&, const YAML::Node& text) -> Status {
            if (!text.IsScalar()) {
              return At(file_, text.Mark(), StrCat("'", name, ".", inner, "': must be one value"));
            }
            map[inner] = text.Scalar();
            return Status::Ok();
          });
    }
    if (has(records.values) || has(records.lists)) {
      auto text = TextOf(value, has(records.lists), false);
      if (!text.ok())
        return At(file_, value.Mark(), StrCat("'", name, "': ", text.status().message()));
      record.values[key] = *std::move(text);
      return Status::Ok();
    }
    std::set<std::string> known(records.values.begin(), records.values.end());
    known.insert(records.lists.begin(), records.lists.end());
    known.insert(records.maps.begin(), records.maps.end());
    return At(file_, mark,
              StrCat("unknown key '", name, "'; did you mean '",
                     FullName(records.section, records.key), ".", Nearest(key, known), "'?"));
  }

  Status ReadValue(const std::string& section, const std::string& name, const YAML::Mark& mark,
                   const YAML::Node& value) const {
    const auto open = std::find_if(open_.begin(), open_.end(),
                                   [&](const YamlSection& s) { return s.name == section; });
    if (open != open_.end()) {
      const bool one = value.IsScalar();
      return Named(section, name, value,
                   one ? open->set(name, value.Scalar()) : InvalidArgument("must be one value"));
    }
    const auto records = std::find_if(records_.begin(), records_.end(), [&](const YamlRecords& r) {
      return r.section == section && r.key == name;
    });
    if (records != records_.end()) return ReadRecords(*records, value);
    const auto key = std::find_if(keys_.begin(), keys_.end(), [&](const YamlKey& k) {
      return k.section == section && k.key == name;
    });
    if (key == keys_.end()) return Unknown(section, name, mark);
    auto text = TextOf(value, key->is_list, key->takes_null);
    return Named(section, name, value, text.ok() ? key->set(*text) : text.status());
  }

  Status Named(const std::string& section, const std::string& name, const YAML::Node& value,
               const Status& status) const {
    if (status.ok()) return status;
    return At(file_, value.Mark(),
              StrCat("'", FullName(section, name.substr(0, 64)), "': ", status.message()));
  }

  Status Unknown(const std::string& section, const std::string& name,
                 const YAML::Mark& mark) const {
    std::set<std::string> known;
    if (section.empty()) known = sections_;
    for (const YamlKey& key : keys_) {
      if (key.section == section) known.insert(key.key);
    }
    for (const YamlRecords& records : records_) {
      if (records.section == section) known.insert(records.key);
    }
    return At(file_, mark,
              StrCat("unknown key '", FullName(section, name.substr(0, 64)), "'; did you mean '",
                     FullName(section, Nearest(name, known)), "'?"));
  }

  const std::string& file_;
  const std::vector<YamlKey>& keys_;
  const std::vector<YamlSection>& open_;
  const std::vector<YamlRecords>& records_;
  std::set<std::string> sections_;
};

}  // namespace

Status ApplyYaml(const std::string& text, const std::string& name, const YamlForm& form) {
  if (text.find('\0') != std::string::npos) {
    return InvalidArgument(StrCat(name, ": not a text file"));
  }
  ONNXD_RETURN_IF_ERROR(RefuseExpansion(text, name));
  try {
    return Reader(name, form).Read(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    return At(name, error.mark, error.msg);
  }
}

}  // namespace onnxd
