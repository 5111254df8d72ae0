#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "server/config/server_options.h"

namespace onnxd {
namespace {

constexpr uint64_t kMaxConfigBytes = 1 << 20;

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

Status ApplySection(const YAML::Node& node, const std::string& section, const std::string& file,
                    ServerOptions& options) {
  std::set<std::string> known, seen;
  for (const OptionKey& key : OptionKeys()) {
    if (key.section == section) known.insert(key.key);
  }
  if (node.IsNull()) return Status::Ok();
  if (!node.IsMap()) return At(file, node.Mark(), StrCat("section '", section, "' must be a map"));
  for (const auto& entry : node) {
    const YAML::Mark mark = entry.first.Mark();
    if (!entry.first.IsScalar()) return At(file, mark, "a key must be a word");
    const std::string name = entry.first.Scalar();
    if (!known.contains(name)) {
      return At(file, mark,
                StrCat("unknown key '", section, ".", name.substr(0, 64), "'; did you mean '",
                       section, ".", Nearest(name, known), "'?"));
    }
    if (!seen.insert(name).second) return At(file, mark, StrCat("key '", name, "' stands twice"));
    if (!entry.second.IsScalar()) {
      return At(file, entry.second.Mark(), StrCat("'", section, ".", name, "' must be one value"));
    }
    const auto key = std::find_if(OptionKeys().begin(), OptionKeys().end(), [&](const auto& k) {
      return k.section == section && k.key == name;
    });
    const Status status = key->set(options, entry.second.Scalar());
    if (!status.ok()) {
      return At(file, entry.second.Mark(),
                StrCat("'", section, ".", name, "': ", status.message()));
    }
  }
  return Status::Ok();
}

}  // namespace

Status ApplyConfigText(const std::string& text, const std::string& name, ServerOptions& options) {
  if (text.find('\0') != std::string::npos) {
    return InvalidArgument(StrCat(name, ": not a text file"));
  }
  ONNXD_RETURN_IF_ERROR(RefuseExpansion(text, name));
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return Status::Ok();
    if (!root.IsMap()) return At(name, root.Mark(), "the file must be a map of sections");
    std::set<std::string> sections, seen;
    for (const OptionKey& key : OptionKeys()) sections.insert(key.section);
    for (const auto& entry : root) {
      const YAML::Mark mark = entry.first.Mark();
      if (!entry.first.IsScalar()) return At(name, mark, "a section must be a word");
      const std::string section = entry.first.Scalar();
      if (!sections.contains(section)) {
        return At(name, mark,
                  StrCat("unknown section '", section.substr(0, 64), "'; did you mean '",
                         Nearest(section, sections), "'?"));
      }
      if (!seen.insert(section).second) {
        return At(name, mark, StrCat("section '", section, "' stands twice"));
      }
      ONNXD_RETURN_IF_ERROR(ApplySection(entry.second, section, name, options));
    }
    return Status::Ok();
  } catch (const YAML::Exception& error) {
    return At(name, error.mark, error.msg);
  }
}

Status ApplyConfigFile(const std::string& path, ServerOptions& options) {
  ONNXD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  return ApplyConfigText(text, path, options);
}

}  // namespace onnxd
