// onnxd compile MODEL: prepares a model ahead of time, its kernels on the device and its packed
// weights, so that a later start finds them.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"
#include "runtime/session/prepared_model_cache.h"
#include "server/generation/decoder_plan.h"
#include "tools/command.h"
#include "tools/precision_guard.h"
#include "tools/random_inputs.h"
#include "tools/test_case.h"
#include "tools/text_runs.h"

namespace onnxd {
namespace {

constexpr size_t kMostShapes = 3;  // least, most frequent, largest

// "ids=1x8:1x128:8x512" as the shapes of as many runs; one shape serves all runs.
Result<std::vector<std::map<std::string, Shape>>> ParseProfiles(
    const std::vector<std::string>& texts) {
  std::vector<std::map<std::string, Shape>> runs(1);
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs;
  for (const std::string& text : texts) {
    const size_t cut = text.rfind('=');
    if (cut == std::string::npos) return InvalidArgument(StrCat("--profile ", text, ": no '='"));
    const auto shapes = SplitList(text.substr(cut + 1), ':');
    if (shapes.empty() || shapes.size() > kMostShapes) {
      return InvalidArgument(StrCat("--profile ", text, ": expected NAME=MIN:OPT:MAX"));
    }
    runs.resize(std::max(runs.size(), shapes.size()));
    inputs.emplace_back(text.substr(0, cut), shapes);
  }
  for (const auto& [name, shapes] : inputs) {
    for (size_t run = 0; run < runs.size(); ++run) {
      const std::string& shape = shapes[std::min(run, shapes.size() - 1)];
      ONNXD_ASSIGN_OR_RETURN(const auto parsed, ParseShapes({StrCat(name, "=", shape)}));
      runs[run].insert(parsed.begin(), parsed.end());
    }
  }
  return runs;
}

Result<std::vector<Value>> RandomInputs(const InferenceSession& session,
                                        const std::map<std::string, Shape>& shapes) {
  std::mt19937 random(1);
  std::vector<Value> inputs;
  for (const TensorSignature& input : session.inputs()) {
    auto value = RandomInput(input, shapes, {}, random);
    if (!value.ok()) return value.status();
    inputs.push_back(*std::move(value));
  }
  return inputs;
}

Status RunAt(const InferenceSession& session, const std::map<std::string, Shape>& shapes) {
  ONNXD_ASSIGN_OR_RETURN(const auto inputs, RandomInputs(session, shapes));
  return session.Run(inputs, {}).status();
}

using Profiles = std::vector<std::map<std::string, Shape>>;

Status RunProfiles(const InferenceSession& session, const Profiles& profiles) {
  for (const auto& shapes : profiles) {
    for (const auto& [name, shape] : shapes) {
      const auto known = [&name = name](const TensorSignature& input) {
        return input.name == name;
      };
      if (std::none_of(session.inputs().begin(), session.inputs().end(), known)) {
        return InvalidArgument(StrCat("--profile ", name, ": the model has no such input"));
      }
    }
    ONNXD_RETURN_IF_ERROR(RunAt(session, shapes));
  }
  return Status::Ok();
}

Result<std::vector<std::vector<Value>>> Samples(const CompileFlags& flags, const Profiles& profiles,
                                                const InferenceSession& session) {
  std::vector<std::vector<Value>> samples;
  for (const std::string& folder : flags.samples) {
    ONNXD_ASSIGN_OR_RETURN(auto inputs, ReadInputs(folder, session));
    samples.push_back(std::move(inputs));
  }
  if (!samples.empty()) return samples;
  for (const auto& shapes : profiles) {
    ONNXD_ASSIGN_OR_RETURN(auto inputs, RandomInputs(session, shapes));
    samples.push_back(std::move(inputs));
  }
  return samples;
}

// Finds which products stay float, says so, and has `session` keep them.
Status GuardPrecision(const CompileFlags& flags, const SessionOptions& options,
                      const Profiles& profiles, SessionFlags& session) {
  if (options.precision != Precision::kFloat16 && options.precision != Precision::kBfloat16) {
    return InvalidArgument("--tolerance is of --precision fp16 or bf16");
  }
  if (std::none_of(options.providers.begin(), options.providers.end(),
                   [](const auto& provider) { return provider->name() == "fused"; })) {
    return InvalidArgument("--tolerance is of the provider fused, with a device");
  }
  const auto with = [&](Precision precision, const std::set<std::string>& float_layers) {
    SessionFlags made = session;
    made.precision = PrecisionName(precision);
    if (!float_layers.empty()) {
      made.provider_options += StrCat(made.provider_options.empty() ? "" : ",",
                                      "float_layers=", StrJoin(float_layers, ";"));
    }
    return made;
  };
  const SessionMaker make =
      [&](Precision precision,
          const std::set<std::string>& float_layers) -> Result<std::unique_ptr<InferenceSession>> {
    ONNXD_ASSIGN_OR_RETURN(SessionOptions made, with(precision, float_layers).ToOptions());
    return InferenceSession::Load(flags.model, std::move(made));
  };
  ONNXD_ASSIGN_OR_RETURN(const auto layers, NarrowableLayers(flags.model, options));
  ONNXD_ASSIGN_OR_RETURN(const auto first, make(Precision::kFloat32, {}));
  ONNXD_ASSIGN_OR_RETURN(const auto samples, Samples(flags, profiles, *first));
  ONNXD_ASSIGN_OR_RETURN(
      const PrecisionChoice choice,
      ChooseFloatLayers(layers, make, options.precision, samples, flags.tolerance));
  std::printf(
      "%s: largest error %.2g of %.2g with all %zu products in %s; %.2g with %zu in float\n",
      flags.model.c_str(), choice.all_narrow_error, flags.tolerance, choice.layers,
      session.precision.c_str(), choice.largest_error, choice.float_layers.size());
  if (choice.float_layers.empty()) return Status::Ok();
  std::printf("model.yaml:\nprovider_options:\n  float_layers: \"%s\"\n",
              StrJoin(choice.float_layers, ";").c_str());
  session = with(options.precision, choice.float_layers);
  return Status::Ok();
}

Status RunCompile(const CompileFlags& flags) {
  const auto begin = std::chrono::steady_clock::now();
  ONNXD_ASSIGN_OR_RETURN(const auto profiles, ParseProfiles(flags.profiles));
  ONNXD_ASSIGN_OR_RETURN(SessionOptions options, flags.session.ToOptions());
  const auto kernels = ProgramCacheIn(*options.cache);  // of the device, which keeps its first one
  if (flags.tolerance > 0) {
    SessionFlags chosen = flags.session;
    ONNXD_RETURN_IF_ERROR(GuardPrecision(flags, options, profiles, chosen));
    ONNXD_ASSIGN_OR_RETURN(options, chosen.ToOptions());
  }
  if (flags.texts) DecoderPlan::AskOf(options);
  ONNXD_ASSIGN_OR_RETURN(const auto session, InferenceSession::Load(flags.model, options));
  ONNXD_RETURN_IF_ERROR(flags.texts ? RunTexts(*session, profiles)
                                    : RunProfiles(*session, profiles));
  if (session->wants_saving()) ONNXD_RETURN_IF_ERROR(session->SaveToCache());
  const auto programs = kernels->statistics();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::string nodes;
  for (const auto& [provider, count] : session->info().nodes_by_provider) {
    nodes += StrCat(nodes.empty() ? "" : ", ", provider, " ", count);
  }
  std::printf("%s: nodes: %s; kernels: %lld compiled, %lld found; %.2f s\n", flags.model.c_str(),
              nodes.c_str(), static_cast<long long>(programs.compiled),
              static_cast<long long>(programs.found), took.count());
  return Status::Ok();
}

}  // namespace

int Compile(const CompileFlags& flags) {
  const Status status = RunCompile(flags);
  return status.ok() ? kExitOk : Fail(status.WithContext(flags.model));
}

}  // namespace onnxd
