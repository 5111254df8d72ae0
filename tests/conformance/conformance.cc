// Runs ONNX's backend test cases through the public session API.
//
//   conformance ROOT [--known-gaps FILE] [--tolerances FILE] [--filter TEXT] [--verbose]
//
// A case is a folder under ROOT with model.onnx and test_data_set_N. Each runs at the optimization
// levels `disable` and `all`. The exit status is 0 when every case passes but those in FILE, and
// none of those passes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "runtime/base/str_cat.h"
#include "runtime/providers/default_providers.h"
#include "tools/compare.h"
#include "tools/test_case.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

struct Tolerance {
  double relative = 1e-3, absolute = 1e-7;  // as ONNX's own runner
};

struct Flags {
  fs::path root;
  std::string known_gaps, tolerances, filter;
  bool verbose = false;
};

// Lines "NAME  rest"; text after # is a comment.
std::map<std::string, std::string> ReadTable(const std::string& path) {
  std::map<std::string, std::string> table;
  if (path.empty()) return table;
  std::ifstream in(path);
  if (!in) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::exit(2);
  }
  for (std::string line; std::getline(in, line);) {
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    std::string name, rest;
    if (words >> name) {
      std::getline(words >> std::ws, rest);
      table[name] = rest;
    }
  }
  return table;
}

std::vector<fs::path> FindCases(const Flags& flags) {
  std::vector<fs::path> cases;
  for (const auto& entry : fs::recursive_directory_iterator(flags.root)) {
    if (entry.path().filename() != "model.onnx") continue;
    const std::string name = fs::relative(entry.path().parent_path(), flags.root).string();
    if (name.find(flags.filter) != std::string::npos) cases.push_back(entry.path().parent_path());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

// Cases older than ONNX 1.18 store bfloat16 tensors as uint16.
void AsBfloat16(const ValueType& wanted, Value& value) {
  if (!wanted.is_tensor() || wanted.element != DataType::kBfloat16 || !value.is_tensor()) return;
  Tensor& tensor = value.tensor();
  if (tensor.type() != DataType::kUint16) return;
  tensor = Tensor::Wrap(DataType::kBfloat16, tensor.shape(), tensor.mutable_raw(), tensor.owner());
}

Status RunCase(const fs::path& folder, OptimizationLevel level, const Tolerance& tolerance) {
  SessionOptions options;
  options.optimization = level;
  options.providers = *MakeProviders({});
  ONNXD_ASSIGN_OR_RETURN(const auto session,
                         InferenceSession::Load((folder / "model.onnx").string(), options));
  for (int set = 0;; ++set) {
    const fs::path data = folder / StrCat("test_data_set_", set);
    if (!fs::exists(data)) {
      return set > 0 ? Status::Ok() : NotFound(StrCat("no data in ", folder.string()));
    }
    ONNXD_ASSIGN_OR_RETURN(auto inputs, ReadInputs(data.string(), *session));
    for (size_t i = 0; i < inputs.size(); ++i) AsBfloat16(session->inputs()[i].type, inputs[i]);
    ONNXD_ASSIGN_OR_RETURN(const auto outputs, session->Run(inputs, {}));
    ONNXD_ASSIGN_OR_RETURN(auto wanted, ReadOutputs(data.string(), *session));
    for (size_t i = 0; i < wanted.size(); ++i) {
      AsBfloat16(session->outputs()[i].type, wanted[i]);
      ONNXD_RETURN_IF_ERROR(
          CompareValues(outputs[i], wanted[i], tolerance.relative, tolerance.absolute)
              .WithContext(StrCat("output '", session->outputs()[i].name, "'")));
    }
  }
}

Tolerance ToleranceOf(const std::map<std::string, std::string>& table, const std::string& name) {
  Tolerance tolerance;
  for (const auto& [part, numbers] : table) {
    if (name.find(part) == std::string::npos) continue;
    std::istringstream(numbers) >> tolerance.relative >> tolerance.absolute;
  }
  return tolerance;
}

int RunAll(const Flags& flags) {
  const auto gaps = ReadTable(flags.known_gaps);
  const auto tolerances = ReadTable(flags.tolerances);
  std::set<std::string> unused;
  for (const auto& [name, reason] : gaps) {
    if (name.find(flags.filter) != std::string::npos) unused.insert(name);
  }
  int passed = 0, failed = 0, known = 0, fixed = 0;
  for (const fs::path& folder : FindCases(flags)) {
    const std::string name = fs::relative(folder, flags.root).string();
    if (flags.verbose) std::fprintf(stderr, "%s\n", name.c_str());
    Status status;
    for (const auto level : {OptimizationLevel::kDisable, OptimizationLevel::kAll}) {
      status = RunCase(folder, level, ToleranceOf(tolerances, name));
      if (status.ok()) continue;
      status = status.WithContext(level == OptimizationLevel::kAll ? "all" : "disable");
      break;
    }
    const bool expected_to_fail = gaps.contains(name);
    unused.erase(name);
    if (status.ok() && !expected_to_fail) {
      ++passed;
    } else if (status.ok()) {
      ++fixed;
      std::printf("PASSES %s: remove it from the known gaps\n", name.c_str());
    } else if (expected_to_fail) {
      ++known;
    } else {
      ++failed;
      std::printf("FAILED %s: %s\n", name.c_str(), status.ToString().c_str());
    }
  }
  for (const std::string& name : unused) std::printf("UNKNOWN %s: no such case\n", name.c_str());
  std::printf("%d passed, %d failed, %d known gaps, %d known gaps that pass\n", passed, failed,
              known, fixed);
  return passed > 0 && failed == 0 && fixed == 0 && unused.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto next = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (argument == "--known-gaps") {
      flags.known_gaps = next();
    } else if (argument == "--tolerances") {
      flags.tolerances = next();
    } else if (argument == "--filter") {
      flags.filter = next();
    } else if (argument == "--verbose") {
      flags.verbose = true;
    } else {
      flags.root = argument;
    }
  }
  if (!fs::is_directory(flags.root)) {
    std::fprintf(stderr, "usage: conformance ROOT [--known-gaps FILE] [--tolerances FILE]\n");
    return 2;
  }
  return RunAll(flags);
}

}  // namespace
}  // namespace onnxd

int main(int argc, char** argv) { return onnxd::Main(argc, argv); }
