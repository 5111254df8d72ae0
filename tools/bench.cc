// onnxd bench MODEL: latency of one model on random inputs, after a warm-up.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "runtime/base/str_cat.h"
#include "tools/command.h"
#include "tools/profile.h"
#include "tools/random_inputs.h"
#include "tools/serve_setup.h"
#include "tools/test_case.h"

namespace onnxd {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// VmHWM: ru_maxrss would count what the process was before exec.
int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kilobytes = 0;
  while (status >> word) {
    if (word == "VmHWM:") status >> kilobytes;
  }
  return kilobytes * 1024;
}

// What comes before runs are timed. The first run packs weights and plans its shapes.
struct Beginning {
  double load_ms = 0;
  double first_run_ms = 0;
  int64_t resident_bytes = 0;  // the process at its peak before it loaded the model
};

void Report(const BenchFlags& flags, const std::vector<Value>& inputs, std::vector<double> times,
            const Beginning& beginning, std::string_view provider) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double quantile) {
    return times[std::min(times.size() - 1,
                          static_cast<size_t>(quantile * static_cast<double>(times.size())))];
  };
  const bool has_batch =
      !inputs.empty() && inputs[0].is_tensor() && inputs[0].tensor().shape().rank() > 0;
  const int64_t batch = has_batch ? inputs[0].tensor().shape()[0] : 1;
  const double median = at(0.5), throughput = static_cast<double>(batch) * 1000.0 / median;
  const int64_t peak = PeakResidentBytes(), of_model = peak - beginning.resident_bytes;
  if (!flags.json) {
    std::printf(
        "%s: median %.4f ms, min %.4f ms, p99 %.4f ms over %d runs; %.1f rows/s; load %.1f ms, "
        "first run %.1f ms; peak memory %.1f MB, %.1f of them for the model\n",
        flags.model.c_str(), median, times.front(), at(0.99), static_cast<int>(times.size()),
        throughput, beginning.load_ms, beginning.first_run_ms, static_cast<double>(peak) / 1e6,
        static_cast<double>(of_model) / 1e6);
    return;
  }
  const nlohmann::json document = {
      {"model", flags.model},
      {"threads", flags.session.threads},
      {"batch", batch},
      {"iterations", flags.iterations},
      {"latency_ms", {{"min", times.front()}, {"median", median}, {"p99", at(0.99)}}},
      {"throughput_per_s", throughput},
      {"load_ms", beginning.load_ms},
      {"first_run_ms", beginning.first_run_ms},
      {"peak_rss_bytes", peak},
      {"model_rss_bytes", of_model},
      {"provider", std::string(provider)}};
  std::printf("%s\n", document.dump().c_str());
}

Status CheckNames(const BenchFlags& flags, const InferenceSession& session) {
  for (const auto* names : {&flags.shapes, &flags.ranges}) {
    for (const std::string& text : *names) {
      const std::string name = text.substr(0, text.rfind('='));
      const bool known = std::any_of(session.inputs().begin(), session.inputs().end(),
                                     [&](const TensorSignature& s) { return s.name == name; });
      if (!known) return InvalidArgument(StrCat("the model has no input '", name, "'"));
    }
  }
  return Status::Ok();
}

Result<std::vector<Value>> MakeInputs(const BenchFlags& flags, const InferenceSession& session) {
  ONNXD_ASSIGN_OR_RETURN(const auto shapes, ParseShapes(flags.shapes));
  ONNXD_ASSIGN_OR_RETURN(const auto ranges, ParseRanges(flags.ranges));
  ONNXD_RETURN_IF_ERROR(CheckNames(flags, session));
  if (!flags.inputs.empty()) return ReadInputs(flags.inputs, session);
  std::mt19937 random(1);
  std::vector<Value> inputs;
  for (const TensorSignature& signature : session.inputs()) {
    auto value = RandomInput(signature, shapes, ranges, random);
    if (!value.ok()) return value.status();
    inputs.push_back(std::move(*value));
  }
  return inputs;
}

// As the server has them, or in the device's memory.
Result<std::vector<Value>> Placed(const BenchFlags& flags, const InferenceSession& session,
                                  std::vector<Value> inputs) {
  for (Value& input : inputs) {
    if (!input.is_tensor() || input.tensor().type() == DataType::kString) continue;
    if (flags.on_device) {
      ONNXD_ASSIGN_OR_RETURN(input, session.MoveInput(input));
      continue;
    }
    const Tensor from = input.tensor();
    ONNXD_ASSIGN_OR_RETURN(Tensor to, session.MakeInput(from.type(), from.shape()));
    if (from.bytes() > 0) std::memcpy(to.mutable_raw(), from.raw(), from.bytes());
    input = std::move(to);
  }
  return inputs;
}

struct Measurement {
  std::vector<double> times;  // ms
  std::vector<ProfiledRun> profiled;
};

RunOptions OptionsOf(const BenchFlags& flags, const InferenceSession& session) {
  RunOptions options;
  if (flags.on_device) options.outputs_on_device.assign(session.outputs().size(), true);
  return options;
}

// Every caller runs it so often. What all of them took, by the number of runs.
Status TimeCallers(const InferenceSession& session, const std::vector<Value>& inputs,
                   const RunOptions& options, int callers, int runs, double& milliseconds) {
  std::vector<Status> results(static_cast<size_t>(callers), Status::Ok());
  const auto call = [&](Status& result) {
    for (int i = 0; i < runs && result.ok(); ++i) result = session.Run(inputs, options).status();
  };
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 1; i < callers; ++i) {
    threads.emplace_back(call, std::ref(results[static_cast<size_t>(i)]));
  }
  call(results[0]);
  for (std::thread& thread : threads) thread.join();
  milliseconds = Milliseconds(Clock::now() - begin) / (runs * callers);
  for (const Status& result : results) ONNXD_RETURN_IF_ERROR(result);
  return Status::Ok();
}

Status MeasureAll(const BenchFlags& flags, const InferenceSession& session,
                  const std::vector<Value>& inputs, Measurement& measured) {
  for (int i = 0; i < flags.iterations; ++i) {
    ProfiledRun run;
    RunOptions run_options = OptionsOf(flags, session);
    if (!flags.profile.empty()) run_options.profile = &run.profile;
    if (flags.callers > 1) {
      double milliseconds = 0;
      ONNXD_RETURN_IF_ERROR(
          TimeCallers(session, inputs, run_options, flags.callers, 1, milliseconds));
      measured.times.push_back(milliseconds);
      continue;
    }
    run.begin = Clock::now();
    ONNXD_RETURN_IF_ERROR(session.Run(inputs, run_options).status());
    run.end = Clock::now();
    measured.times.push_back(Milliseconds(run.end - run.begin));
    if (!flags.profile.empty()) measured.profiled.push_back(std::move(run));
  }
  return Status::Ok();
}

Status MeasureInTurns(const BenchFlags& flags, const InferenceSession& session,
                      const std::vector<Value>& inputs, Measurement& measured) {
  std::printf("ready\n");
  std::fflush(stdout);
  int count = 0;
  while (std::scanf("%d", &count) == 1 && count > 0) {
    measured.times.push_back(0);
    ONNXD_RETURN_IF_ERROR(TimeCallers(session, inputs, OptionsOf(flags, session), flags.callers,
                                      count, measured.times.back()));
    std::printf("%.6f\n", measured.times.back());
    std::fflush(stdout);
  }
  return measured.times.empty() ? InvalidArgument("--paced was asked for no run") : Status::Ok();
}

Status RunBench(const BenchFlags& flags) {
  ONNXD_ASSIGN_OR_RETURN(SessionOptions options, flags.session.ToOptions());
  const std::string provider(options.providers.front()->name());
  Beginning beginning;
  beginning.resident_bytes = PeakResidentBytes();
  const auto begin = Clock::now();
  ONNXD_ASSIGN_OR_RETURN(const auto session,
                         InferenceSession::Load(flags.model, std::move(options)));
  beginning.load_ms = Milliseconds(Clock::now() - begin);
  ONNXD_ASSIGN_OR_RETURN(std::vector<Value> inputs, MakeInputs(flags, *session));
  if (flags.keeps_outputs) session->KeepOutputMemory();
  ONNXD_ASSIGN_OR_RETURN(inputs, Placed(flags, *session, std::move(inputs)));
  const int warm_up = flags.paced ? 2 : std::max(2, flags.iterations / 10);
  for (int i = 0; i < warm_up; ++i) {
    const auto run_begin = Clock::now();
    ONNXD_ASSIGN_OR_RETURN(const auto outputs, session->Run(inputs, OptionsOf(flags, *session)));
    if (i == 0) beginning.first_run_ms = Milliseconds(Clock::now() - run_begin);
    if (i > 0 || flags.compare.empty()) continue;
    ONNXD_RETURN_IF_ERROR(
        CompareOutputs(flags.compare, *session, outputs, flags.relative, flags.absolute));
  }
  ONNXD_RETURN_IF_ERROR(session->SaveToCache());
  TuneAllocator();  // runs find memory as they do in the server
  Measurement measured;
  ONNXD_RETURN_IF_ERROR(flags.paced ? MeasureInTurns(flags, *session, inputs, measured)
                                    : MeasureAll(flags, *session, inputs, measured));
  Report(flags, inputs, measured.times, beginning, provider);
  if (measured.profiled.empty()) return Status::Ok();
  ONNXD_RETURN_IF_ERROR(WriteChromeTrace(flags.profile, measured.profiled));
  if (!flags.json) std::printf("%s", ProfileTable(measured.profiled).c_str());
  return Status::Ok();
}

}  // namespace

int Bench(const BenchFlags& flags) {
  const Status status = RunBench(flags);
  return status.ok() ? kExitOk : Fail(status.WithContext(flags.model));
}

}  // namespace onnxd
