// What a shell completes: the sub-commands and options of the command line, as a script for it.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace onnxd {

// `shell`: bash, zsh or fish. The program has the app's name; other words are completed as files.
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace onnxd
