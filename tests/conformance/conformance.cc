// Runs ONNX's backend test cases through the public session API.
//
//   conformance ROOT [--known-gaps FILE] [--tolerances FILE] [--filter TEXT] [--verbose]
//               [--expand-functions] [--providers LIST] [--every N]
//               [--nvrtc]
//
// With --expand-functions no provider takes an operator that has a function body, so that the
// bodies stand the same test.
//
// With --providers, by priority and separated by commas, others than the CPU's compute; the cases
// in which none of them took a node are counted apart. With --every only each Nth case runs.
//
// A case is a folder under ROOT with model.onnx and test_data_set_N. Each runs at the optimization
// levels `disable` and `all`. The exit status is 0 when every case passes but those in FILE, and
// none of those passes, unless its reason begins with "random".
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "runtime/base/file.h"
#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"
#include "runtime/device/cuda/nvrtc.h"
#include "runtime/device/gpu_device.h"
#include "runtime/format/value_file.h"
#include "runtime/ops/functions.h"
#include "runtime/providers/default_providers.h"
#include "server/inference/compare_values.h"
#include "tests/support/case_folders.h"
#include "tools/test_case.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

constexpr int kExitSkipped = 77;

struct Tolerance {
  double relative = 1e-3, absolute = 1e-7;  // as ONNX's own runner
};

struct Flags {
  fs::path root;
  std::string known_gaps, tolerances, filter, providers;
  int every = 1;
  bool verbose = false, expand_functions = false, nvrtc = false;
};

// The CPU provider but for operators with a function body.
class PrimitivesProvider : public ExecutionProvider {
 public:
  std::string_view name() const override { return "primitives"; }
  bool Knows(const Node& node) const override {
    return FindFunction(node) == nullptr && cpu_->Knows(node);
  }
  Result<std::unique_ptr<Kernel>> CreateKernel(const KernelInfo& info) const override {
    if (FindFunction(info.node) != nullptr) return Unimplemented("it has a function body");
    return cpu_->CreateKernel(info);
  }
  std::vector<const GraphPass*> Passes() const override { return cpu_->Passes(); }

 private:
  std::shared_ptr<const ExecutionProvider> cpu_ = (*MakeProviders({}))[0];
};

std::vector<std::shared_ptr<const ExecutionProvider>> ProvidersFor(const Flags& flags) {
  if (flags.expand_functions) return {std::make_shared<PrimitivesProvider>()};
  return *MakeProviders(SplitList(flags.providers, ','));
}

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

// Fields of the protobuf wire format, as far as single nodes need them.
std::string VarintField(int field, uint64_t value) {
  std::string out(1, static_cast<char>(field << 3));
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  return out + static_cast<char>(value);
}

std::string BytesField(int field, const std::string& bytes) {
  std::string out = VarintField(field, bytes.size());
  out[0] = static_cast<char>(field << 3 | 2);
  return out + bytes;
}

// The strings of a repeated field; the message must hold fields of bytes and varints alone.
std::vector<std::string> Strings(const std::string& message, int wanted) {
  std::vector<std::string> found;
  const auto varint = [&](size_t& at) {
    uint64_t value = 0;
    for (int shift = 0; at < message.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message[at++]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  for (size_t at = 0; at < message.size();) {
    const uint64_t tag = varint(at), length = varint(at);
    if ((tag & 7) != 2) continue;
    if (static_cast<int>(tag >> 3) == wanted) found.push_back(message.substr(at, length));
    at += length;
  }
  return found;
}

// ONNX 1.1 stored its cases as a node with the tensors around it: node.pb, input_K.pb, output_K.pb.
// The model that it stands for, of the opset of that release.
Result<std::string> ModelOfNode(const fs::path& folder) {
  constexpr uint64_t kOpset = 4;
  ONNXD_ASSIGN_OR_RETURN(const std::string node, ReadFile((folder / "node.pb").string(), 1 << 20));
  std::string graph = BytesField(1, node) + BytesField(2, "node");
  for (const bool input : {true, false}) {
    int position = 0;
    for (const std::string& name : Strings(node, input ? 1 : 2)) {
      if (name.empty()) continue;
      const std::string file = StrCat(input ? "input_" : "output_", position++, ".pb");
      ONNXD_ASSIGN_OR_RETURN(std::string bytes, ReadFile((folder / file).string(), 1 << 26));
      ONNXD_ASSIGN_OR_RETURN(const Value value, ParseValue(std::move(bytes), ValueType{}));
      std::string shape;
      for (const int64_t dim : value.tensor().shape().dims()) {
        shape += BytesField(1, VarintField(1, static_cast<uint64_t>(dim)));
      }
      const auto type = static_cast<uint64_t>(value.tensor().type());
      const std::string tensor = VarintField(1, type) + BytesField(2, shape);
      graph +=
          BytesField(input ? 11 : 12, BytesField(1, name) + BytesField(2, BytesField(1, tensor)));
    }
  }
  return VarintField(1, 3) + BytesField(7, graph) + BytesField(8, VarintField(2, kOpset));
}

// Cases older than ONNX 1.18 store bfloat16 tensors as uint16.
void AsBfloat16(const ValueType& wanted, Value& value) {
  if (!wanted.is_tensor() || wanted.element != DataType::kBfloat16 || !value.is_tensor()) return;
  Tensor& tensor = value.tensor();
  if (tensor.type() != DataType::kUint16) return;
  tensor = Tensor::Wrap(DataType::kBfloat16, tensor.shape(), tensor.mutable_raw(), tensor.owner());
}

// `on_device`: how many nodes were not the CPU's.
Status RunCase(const fs::path& folder, const SessionOptions& options, const Tolerance& tolerance,
               int64_t& on_device) {
  const bool single = !fs::exists(folder / "model.onnx");
  std::unique_ptr<InferenceSession> session;
  if (single) {
    ONNXD_ASSIGN_OR_RETURN(std::string model, ModelOfNode(folder));
    ONNXD_ASSIGN_OR_RETURN(session, InferenceSession::LoadBytes(std::move(model), options));
  } else {
    ONNXD_ASSIGN_OR_RETURN(session,
                           InferenceSession::Load((folder / "model.onnx").string(), options));
  }
  for (const auto& [provider, nodes] : session->info().nodes_by_provider) {
    if (provider != "cpu" && provider != "session") on_device += nodes;
  }
  for (int set = 0;; ++set) {
    const fs::path data = single ? folder : folder / StrCat("test_data_set_", set);
    if (!fs::exists(data) || (single && set > 0)) {
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

// How many of the devices' kernels NVRTC refuses.
int RefusedByNvrtc(std::span<const std::shared_ptr<const ExecutionProvider>> providers) {
  const auto nvrtc = cuda::OpenNvrtc();
  if (!nvrtc.ok()) {
    std::printf("not compiled for CUDA: %s\n", nvrtc.status().ToString().c_str());
    return 0;
  }
  int compiled = 0, refused = 0;
  for (const auto& provider : providers) {
    const auto* device = dynamic_cast<const GpuDevice*>(provider->device());
    if (device == nullptr) continue;
    for (const std::string& source : device->sources()) {
      for (const int capability : {80, 90}) {
        const auto cubin =
            cuda::CompileToCubin(**nvrtc, StrCat(Prelude(Dialect::kCuda), source), capability);
        ++(cubin.ok() ? compiled : refused);
        if (!cubin.ok()) {
          std::printf("REFUSED by NVRTC: %s\n%s\n", cubin.status().ToString().c_str(),
                      source.c_str());
        }
      }
    }
  }
  std::printf("%d compiled for CUDA, %d refused\n", compiled, refused);
  return refused;
}

int RunAll(const Flags& flags) {
  const auto gaps = ReadTable(flags.known_gaps);
  const auto tolerances = ReadTable(flags.tolerances);
  std::set<std::string> unused;
  for (const auto& [name, reason] : gaps) {
    if (name.find(flags.filter) != std::string::npos) unused.insert(name);
  }
  SessionOptions options;
  options.denormals_as_zero = true;  // as the program has it
  options.providers = ProvidersFor(flags);
  int passed = 0, failed = 0, known = 0, fixed = 0, position = 0, without_device = 0;
  for (const fs::path& folder : CaseFolders(flags.root, {"model.onnx", "node.pb"}, flags.filter)) {
    if (position++ % flags.every != 0) continue;
    const std::string name = fs::relative(folder, flags.root).string();
    if (flags.verbose) std::fprintf(stderr, "%s\n", name.c_str());
    Status status;
    int64_t on_device = 0;
    for (const auto level : {OptimizationLevel::kDisable, OptimizationLevel::kAll}) {
      options.optimization = level;
      status = RunCase(folder, options, ToleranceOf(tolerances, name), on_device);
      if (status.ok()) continue;
      status = status.WithContext(level == OptimizationLevel::kAll ? "all" : "disable");
      break;
    }
    if (on_device == 0) {
      ++without_device;
      if (flags.verbose && !flags.providers.empty()) std::printf("HOST %s\n", name.c_str());
    }
    const auto gap = gaps.find(name);
    const bool expected_to_fail = gap != gaps.end();
    unused.erase(name);
    if (status.ok() && !expected_to_fail) {
      ++passed;
    } else if (status.ok() && gap->second.starts_with("random")) {
      ++known;  // the draw may be the recorded one
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
  // A smaller set of cases (see data.py) lacks those of older releases.
  const bool complete = fs::exists(flags.root / "node" / "v1.1.0") && flags.every == 1;
  if (!complete) unused.clear();
  for (const std::string& name : unused) std::printf("UNKNOWN %s: no such case\n", name.c_str());
  std::printf("%d passed, %d failed, %d known gaps, %d known gaps that pass\n", passed, failed,
              known, fixed);
  if (!flags.providers.empty()) std::printf("%d computed by the CPU alone\n", without_device);
  const int refused = flags.nvrtc ? RefusedByNvrtc(options.providers) : 0;
  return refused == 0 && passed > 0 && failed == 0 && fixed == 0 && unused.empty() ? 0 : 1;
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
    } else if (argument == "--expand-functions") {
      flags.expand_functions = true;
    } else if (argument == "--providers") {
      flags.providers = next();
    } else if (argument == "--nvrtc") {
      flags.nvrtc = true;
    } else if (argument == "--every") {
      flags.every = std::max(1, std::atoi(next()));
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
  for (const std::string& name : SplitList(flags.providers, ',')) {
    const auto providers = ProvidersFor(flags);
    const auto has = [&](const auto& provider) { return provider->name() == name; };
    if (std::none_of(providers.begin(), providers.end(), has)) {
      std::printf("no device for provider %s on this machine\n", name.c_str());
      return kExitSkipped;
    }
  }
  return RunAll(flags);
}

}  // namespace
}  // namespace onnxd

int main(int argc, char** argv) { return onnxd::Main(argc, argv); }
