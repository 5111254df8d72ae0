// Runs mutations of ONNX's backend test cases: whatever comes, the engine answers or refuses, and
// soon. Meant for a sanitizer build.
//
//   hostile_cases ROOT [--filter TEXT] [--rounds N] [--seed N] [--part K/N] [--verbose]
//                 [--provider NAME]
//
// --provider puts one, such as opencl or fused, before the CPU's.
//
// Each case runs in a process of its own. Exits 0 when every mutation was answered or refused
// within the time limit; a crash names the case and the seed that repeats it.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "runtime/base/str_cat.h"
#include "runtime/format/model_reader.h"
#include "runtime/providers/default_providers.h"
#include "runtime/session/inference_session.h"
#include "tests/hostile/mutation.h"
#include "tests/support/case_folders.h"
#include "tools/test_case.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kDeadline = std::chrono::seconds(2);
constexpr auto kTooSlow = std::chrono::seconds(20);  // sanitizers slow a run down
constexpr int64_t kRunBytes = int64_t{128} << 20;

struct Flags {
  fs::path root;
  std::string filter;
  uint64_t seed = 1, rounds = 2;
  size_t part = 0, parts = 1;
  bool verbose = false;
  std::string provider;
};

struct Tally {
  int mutations = 0, refused_at_load = 0, refused_at_run = 0, answered = 0, slow = 0;
};

// What a case's process tells the one that waits for it.
struct Report {
  Tally tally;
  char mutation[512];  // the one that runs
};

constexpr unsigned kHang = 120;  // seconds after which a case's process is ended

SessionOptions Options(OptimizationLevel level, const std::string& provider = "") {
  SessionOptions options;
  options.optimization = level;
  std::vector<std::string> names = {"cpu"};
  if (!provider.empty()) names.insert(names.begin(), provider);
  options.providers = *MakeProviders(names);
  options.max_run_bytes = kRunBytes;
  return options;
}

Result<std::vector<Value>> RecordedInputs(const fs::path& folder) {
  ONNXD_ASSIGN_OR_RETURN(const auto session,
                         InferenceSession::Load((folder / "model.onnx").string(),
                                                Options(OptimizationLevel::kDisable)));
  return ReadInputs((folder / "test_data_set_0").string(), *session);
}

void RunMutation(Model model, const std::vector<Value>& inputs, SessionOptions session_options,
                 Tally& tally) {
  ++tally.mutations;
  const auto session = InferenceSession::FromModel(std::move(model), std::move(session_options));
  if (!session.ok()) {
    ++tally.refused_at_load;
    return;
  }
  RunOptions options;
  options.deadline = Clock::now() + kDeadline;
  ++((*session)->Run(inputs, options).ok() ? tally.answered : tally.refused_at_run);
}

void RunCase(const Flags& flags, const fs::path& folder, Report& report) {
  const auto inputs = RecordedInputs(folder);
  if (!inputs.ok()) return;  // a known gap
  const std::string name = fs::relative(folder, flags.root).string();
  for (uint64_t round = 0; round < flags.rounds; ++round) {
    const uint64_t seed = flags.seed + round;
    const auto start = Clock::now();
    // Read again for each level: sessions take a model's subgraphs over.
    for (const auto level : {OptimizationLevel::kDisable, OptimizationLevel::kAll}) {
      Result<Model> model = ReadModelFile((folder / "model.onnx").string());
      if (!model.ok()) return;
      Mutator mutator(seed ^ std::hash<std::string>{}(name));
      std::vector<Value> mutated = *inputs;
      const std::string changes = mutator.Mutate(*model, mutated);
      const std::string label =
          StrCat(name, " --rounds 1 --seed ", seed, "  (", changes, " )\n").substr(0, 500);
      std::copy_n(label.c_str(), label.size() + 1, report.mutation);
      if (flags.verbose) std::fputs(report.mutation, stderr);
      RunMutation(std::move(*model), mutated, Options(level, flags.provider), report.tally);
    }
    if (Clock::now() - start < kTooSlow) continue;
    ++report.tally.slow;
    std::printf("SLOW %s", report.mutation);
    std::fflush(stdout);
  }
}

// False when the case's process crashed or hung.
bool RunCaseAlone(const Flags& flags, const fs::path& folder, Report& report) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kHang);
    RunCase(flags, folder, report);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  const bool hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
  std::printf("%s %s", hung ? "HUNG" : "CRASHED", report.mutation);
  return false;
}

int RunAll(const Flags& flags) {
  auto* report = static_cast<Report*>(
      mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (report == MAP_FAILED) return 2;
  *report = Report{};
  int failed = 0;
  const std::vector<fs::path> cases = CaseFolders(flags.root, {"model.onnx"}, flags.filter);
  for (size_t i = flags.part; i < cases.size(); i += flags.parts) {
    failed += RunCaseAlone(flags, cases[i], *report) ? 0 : 1;
  }
  const Tally& tally = report->tally;
  std::printf(
      "%d mutations: %d refused at load, %d refused at run, %d answered, %d slow; %d cases crashed "
      "or hung\n",
      tally.mutations, tally.refused_at_load, tally.refused_at_run, tally.answered, tally.slow,
      failed);
  return tally.mutations > 0 && tally.slow == 0 && failed == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto next = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (argument == "--filter") {
      flags.filter = next();
    } else if (argument == "--rounds") {
      flags.rounds = std::strtoull(next().c_str(), nullptr, 10);
    } else if (argument == "--seed") {
      flags.seed = std::strtoull(next().c_str(), nullptr, 10);
    } else if (argument == "--part") {
      if (std::sscanf(next().c_str(), "%zu/%zu", &flags.part, &flags.parts) != 2) return 2;
    } else if (argument == "--provider") {
      flags.provider = next();
    } else if (argument == "--verbose") {
      flags.verbose = true;
    } else {
      flags.root = argument;
    }
  }
  if (!fs::is_directory(flags.root) || flags.parts == 0) {
    std::fprintf(stderr, "usage: hostile_cases ROOT [--filter TEXT] [--rounds N] [--seed N]\n");
    return 2;
  }
  return RunAll(flags);
}

}  // namespace
}  // namespace onnxd

int main(int argc, char** argv) { return onnxd::Main(argc, argv); }
