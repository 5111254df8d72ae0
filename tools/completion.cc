#include "tools/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// A command: the words that lead to it, and those that may come next.
struct Command {
  std::string path;  // "", "models", "models load"
  std::vector<std::string> commands, options;
};

void Collect(const CLI::App& app, const std::string& path, std::vector<Command>& found) {
  Command command{path, {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) command.options.push_back("--" + name);
  }
  for (const CLI::App* sub : app.get_subcommands({})) command.commands.push_back(sub->get_name());
  found.push_back(std::move(command));
  for (const CLI::App* sub : app.get_subcommands({})) {
    Collect(*sub, StrCat(path, path.empty() ? "" : " ", sub->get_name()), found);
  }
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += StrCat(text.empty() ? "" : " ", word);
  return text;
}

// The words before the one to complete that name commands are its path: a word joins the path only
// where the path has it as a command.
std::string BashScript(const std::vector<Command>& commands) {
  std::string script =
      "_onnxd() {\n"
      "  local path='' word words='' i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=${COMP_WORDS[i]}\n"
      "    case \"$path $word\" in\n";
  for (const Command& command : commands) {
    if (command.path.empty()) continue;
    const size_t space = command.path.rfind(' ');
    const std::string parent = space == std::string::npos ? "" : command.path.substr(0, space);
    script += StrCat("      '", parent, " ", command.path.substr(space + 1), "') path='",
                     command.path, "' ;;\n");
  }
  script +=
      "    esac\n"
      "  done\n"
      "  case \"$path\" in\n";
  for (const Command& command : commands) {
    script += StrCat("    '", command.path, "') words='", Joined(command.commands),
                     command.commands.empty() ? "" : " ", Joined(command.options), "' ;;\n");
  }
  script +=
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
      "}\n"
      "complete -o default -F _onnxd onnxd\n";
  return script;
}

std::string FishScript(const std::vector<Command>& commands) {
  std::string script;
  for (const Command& command : commands) {
    std::string condition;
    if (command.path.empty()) {
      condition = "__fish_use_subcommand";
    } else {
      for (size_t begin = 0; begin < command.path.size();) {
        const size_t end = std::min(command.path.find(' ', begin), command.path.size());
        condition += StrCat(condition.empty() ? "" : "; and ", "__fish_seen_subcommand_from ",
                            command.path.substr(begin, end - begin));
        begin = end + 1;
      }
    }
    const std::string start = StrCat("complete -c onnxd -n '", condition, "'");
    if (!command.commands.empty()) {
      script += StrCat(start, " -f -a '", Joined(command.commands), "'\n");
    }
    for (const std::string& option : command.options) {
      script += StrCat(start, " -l ", option.substr(2), "\n");
    }
  }
  return script;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  std::vector<Command> commands;
  Collect(app, "", commands);
  if (shell == "fish") return FishScript(commands);
  const std::string script = BashScript(commands);
  if (shell == "bash") return script;
  return StrCat(
      "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n", script);
}

}  // namespace onnxd
