#include "server/models/model_loader.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/base/machine.h"
#include "runtime/session/prepared_model_cache.h"
#include "runtime/tensor/convert.h"
#include "server/generation/generation_files.h"
#include "server/generation/generator.h"
#include "server/generation/prompt_tokens.h"
#include "server/models/batch_trial.h"
#include "server/models/declared_signature.h"
#include "server/models/padding_plan.h"
#include "server/models/random_rows.h"
#include "server/models/sequence_plan.h"
#include "server/texts/found_texts.h"
#include "server/texts/text_plan.h"

namespace onnxd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kWarmUpLimit = std::chrono::seconds(5);
// Of a batch on a device, whose kernels are compiled and timed first.
constexpr auto kDeviceWarmUpLimit = std::chrono::seconds(60);
// Batches that take longer are not worth their memory before anybody asks for them.
constexpr auto kQuickBatch = std::chrono::milliseconds(50);
// Of free dimensions other than the first, in the order they are tried.
constexpr int64_t kSizes[] = {8, 1, 128};

RunOptions RunOptionsOf(const RunLimits& limits) {
  RunOptions options;
  options.deadline = limits.deadline;
  options.cancelled = limits.cancelled;
  options.yield_every = limits.yield_every;
  options.outputs_into.assign(limits.outputs_into.begin(), limits.outputs_into.end());
  return options;
}

// `outputs_on_device`: as of RunOptions.
RunFunction RunFunctionOf(const ModelVersion& version, std::vector<bool> outputs_on_device) {
  const InferenceSession& session = *version.session;
  return [&session, memory = version.memory, outputs_on_device = std::move(outputs_on_device)](
             std::span<const Value> inputs, const RunLimits& limits) -> Result<std::vector<Value>> {
    const int64_t refusals = memory->refusals();
    RunOptions options = RunOptionsOf(limits);
    options.outputs_on_device = outputs_on_device;
    auto outputs = session.Run(inputs, options);
    if (outputs.ok() || outputs.status().code() != StatusCode::kResourceExhausted ||
        memory->refusals() == refusals) {
      return outputs;
    }
    // Not too much by itself, but beside all else that is in memory now.
    return Unavailable(StrCat("limits.memory_bytes is reached: ", outputs.status().message()));
  };
}

BatchComputation TokenizingOf(std::shared_ptr<const TextPlan> plan) {
  return {[plan = std::move(plan)](std::span<const Value> texts, const RunLimits& limits) {
    return TokensOf(*plan, texts, RunOptionsOf(limits));
  }};
}

BatchComputation PromptTokensOf(std::shared_ptr<const GenerationPlan> plan) {
  return {[plan = std::move(plan)](std::span<const Value> prompt, const RunLimits&) {
    return PromptTokens(*plan, prompt);
  }};
}

BatchComputation ComputationOf(const ModelVersion& version,
                               std::vector<bool> outputs_on_device) {
  const InferenceSession& session = *version.session;
  return {RunFunctionOf(version, std::move(outputs_on_device)),
          [&session](DataType type, const Shape& shape) { return session.MakeInput(type, shape); },
          session.runs_on_device()};
}

QueuePolicy PolicyOf(const ModelSettings& settings) {
  QueuePolicy policy;
  policy.priority_levels = settings.batching.priority_levels;
  policy.default_priority_level = settings.batching.default_priority_level;
  policy.max_requests = settings.batching.queue_requests;
  policy.max_executors = settings.executors;
  policy.delays_expired = settings.batching.timeout_action == "delay";
  return policy;
}

BatchSettings BatchSettingsOf(const BatchingOptions& batching) {
  BatchSettings settings;
  settings.max_batch_size = batching.max_batch_size;
  settings.preferred_batch_size = batching.preferred_batch_size;
  if (batching.max_queue_delay_us >= 0) {
    settings.max_queue_delay = static_cast<double>(batching.max_queue_delay_us) * 1e-6;
  }
  settings.target_p99 = static_cast<double>(batching.target_p99_ms) * 1e-3;
  return settings;
}

// Why requests run alone; empty when they may share runs.
std::string WhyAlone(const BatchingOptions& batching, const InferenceSession& session,
                     const std::atomic<bool>& stopping) {
  if (batching.mode == "off") return "batching.mode is off";
  if (batching.max_batch_size == 1) return "batching.max_batch_size is 1";
  if (!session.info().rows_depend.empty()) return session.info().rows_depend;
  return TryBatch(session, stopping);
}

// The model's own file must not want what the graph cannot do.
Status CheckBatching(const ModelSettings& settings, const InferenceSession& session) {
  const std::string& why = session.info().rows_depend;
  const bool wants = settings.batch_size_given && settings.batching.mode != "off";
  if (!wants || settings.batching.max_batch_size == 1 || why.empty()) return Status::Ok();
  return InvalidArgument(StrCat("model.yaml wants batches of up to ",
                                settings.batching.max_batch_size,
                                " rows, but requests must run alone: ", why));
}

struct MadeUpRun {
  std::vector<Value> outputs;
  Clock::duration took;
};

// A run of made-up rows; a failure when the model does not take them.
Result<MadeUpRun> RunOnce(const InferenceSession& session, int64_t rows,
                          const std::atomic<bool>* stopping) {
  std::mt19937 random(7);
  RunOptions options;
  options.deadline = Clock::now() + (session.runs_on_device() ? kDeviceWarmUpLimit : kWarmUpLimit);
  options.cancelled = stopping;
  Status failure;
  for (const int64_t size : kSizes) {
    ONNXD_ASSIGN_OR_RETURN(const auto inputs, RandomRows(session.inputs(), rows, size, random));
    const auto begin = Clock::now();
    auto outputs = session.Run(inputs, options);
    if (outputs.ok()) return MadeUpRun{*std::move(outputs), Clock::now() - begin};
    failure = outputs.status();
    if (failure.code() != StatusCode::kInvalidArgument) break;
  }
  return failure;
}

bool IsFinite(const Tensor& tensor) {
  if (!IsFloatingPoint(tensor.type())) return true;
  const auto numbers = Converted(tensor, DataType::kDouble);
  if (!numbers.ok()) return false;
  const auto elements = numbers->elements<double>();
  return std::all_of(elements.begin(), elements.end(), [](double x) { return std::isfinite(x); });
}

// Of a version with models.warm_up_failure `refuse`.
Status CheckWarmUp(const InferenceSession& session, const Result<MadeUpRun>& run) {
  if (!run.ok()) return run.status().WithContext("the warm-up run failed");
  for (size_t i = 0; i < run->outputs.size(); ++i) {
    const Value& output = run->outputs[i];
    if (output.is_tensor() && !IsFinite(output.tensor())) {
      return FailedPrecondition(StrCat("the warm-up run answered NaN or infinity in output '",
                                       session.outputs()[i].name, "'"));
    }
  }
  return Status::Ok();
}

// Powers of two; on a device all sizes that will run, whose first runs do not count.
void WarmBatches(const InferenceSession& session, const BatchSettings& settings,
                 const std::atomic<bool>* stopping) {
  const auto& preferred = settings.preferred_batch_size;
  const int64_t most = preferred.empty() ? settings.max_batch_size : preferred.back();
  const bool on_device = session.runs_on_device();
  const auto next = [&](int64_t rows) {
    return on_device ? DeviceBatchSize(rows + 1, settings) : rows * 2;
  };
  for (int64_t rows = next(1); rows <= most; rows = next(rows)) {
    if (on_device && !RunOnce(session, rows, stopping).ok()) return;
    const auto run = RunOnce(session, rows, stopping);
    if (!run.ok() || run->took > kQuickBatch) return;
  }
}

// Loads from files that are not `trusted`: kAborted if their contents changed meanwhile, whatever
// their times say.
Result<std::unique_ptr<InferenceSession>> LoadUnchanged(
    const WantedVersion& wanted, bool trusted,
    const std::function<Result<std::unique_ptr<InferenceSession>>()>& load) {
  if (trusted) return load();
  ONNXD_ASSIGN_OR_RETURN(const ContentHash before, HashContents(wanted));
  auto session = load();
  ONNXD_ASSIGN_OR_RETURN(const ContentHash after, HashContents(wanted));
  if (!(before == after)) return Aborted("the files changed while they were loaded");
  return session;
}

// How its requests become the session's.
struct Plans {
  std::shared_ptr<const SequencePlan> sequence;
  std::shared_ptr<const PaddingPlan> padding;
  std::shared_ptr<const TextPlan> texts;
  std::shared_ptr<const GenerationPlan> generation;
};

// Null: clients send tokens.
Result<std::shared_ptr<const TextPlan>> TextPlanOf(const WantedVersion& wanted,
                                                   const InferenceSession& session,
                                                   const SessionOptions& options) {
  const std::shared_ptr<const TextPlan> none;
  TextSettings texts = wanted.settings.texts;
  const bool finds = texts.finds_files();
  if (!texts.active() || (finds && wanted.settings.sequence.enabled)) return none;
  const std::string folder = TextFolderOf(wanted.path);
  if (finds) {
    const FoundTexts found = FindTexts(texts, folder, session.inputs(), session.outputs());
    if (!found.settings.active()) return none;
    if (!found.warning.empty()) {
      LogWarning(StrCat("model '", wanted.model, "': texts: ", found.warning));
    }
    texts = found.settings;
  }
  auto plan = MakeTextPlan(texts, folder, session.inputs(), session.outputs(), options);
  if (plan.ok() || !finds) return plan;
  LogWarning(StrCat("model '", wanted.model, "' takes tokens: ", plan.status().ToString()));
  return none;
}

// Its model.yaml says how requests with tensors are served.
bool HasOtherUse(const ModelSettings& settings) {
  return settings.sequence.enabled || settings.response_cache.enabled || !settings.padding.empty();
}

// Whether it does so if it is a model of that kind.
bool MayWriteTexts(const WantedVersion& wanted) {
  const GenerationSettings& generation = wanted.settings.generation;
  if (!generation.finds_files()) return generation.active();
  return generation.active() && !HasOtherUse(wanted.settings) &&
         HasTokenizer(TextFolderOf(wanted.path));
}

// Null: clients send tensors.
Result<std::shared_ptr<const GenerationPlan>> GenerationPlanOf(const WantedVersion& wanted,
                                                               const InferenceSession& session) {
  const std::shared_ptr<const GenerationPlan> none;
  const GenerationSettings& generation = wanted.settings.generation;
  const std::string folder = TextFolderOf(wanted.path);
  const bool finds = generation.finds_files();
  if (!MayWriteTexts(wanted) || (finds && !IsDecoder(session.inputs()))) return none;
  auto plan = MakeGenerationPlan(generation, folder, session);
  if (plan.ok()) return plan;
  if (!finds) return plan.status().WithContext("generation");
  LogWarning(StrCat("model '", wanted.model, "' writes no texts: ", plan.status().ToString()));
  return none;
}

Result<std::shared_ptr<const PaddingPlan>> PaddingPlanOf(
    const std::vector<PaddedDimension>& padding, const InferenceSession& session) {
  ONNXD_ASSIGN_OR_RETURN(auto plan, MakePaddingPlan(padding, session.inputs(), session.outputs()));
  ONNXD_RETURN_IF_ERROR(CheckPadding(*plan, session, nullptr));
  return plan;
}

Result<Plans> PlansOf(const WantedVersion& wanted, const InferenceSession& session,
                      const SessionOptions& options) {
  const ModelSettings& settings = wanted.settings;
  Plans plans;
  ONNXD_ASSIGN_OR_RETURN(plans.generation, GenerationPlanOf(wanted, session));
  if (plans.generation != nullptr) return plans;
  ONNXD_ASSIGN_OR_RETURN(plans.texts, TextPlanOf(wanted, session, options));
  if (settings.sequence.enabled) {
    ONNXD_ASSIGN_OR_RETURN(
        plans.sequence, MakeSequencePlan(settings.sequence, session.inputs(), session.outputs()));
  }
  if (!settings.padding.empty()) {
    ONNXD_ASSIGN_OR_RETURN(plans.padding, PaddingPlanOf(settings.padding, session));
  } else if (plans.texts != nullptr && session.runs_on_device()) {
    const auto padding = TextPadding(*plans.texts, session.inputs());
    if (padding.empty()) return plans;
    auto plan = PaddingPlanOf(padding, session);
    if (plan.ok()) {
      plans.padding = *std::move(plan);
    } else {
      LogInfo(StrCat("model '", wanted.model, "': ", plan.status().message()));
    }
  }
  return plans;
}

// What its clients see of the session's.
void SetSignature(ModelVersion& version) {
  version.inputs = version.session->inputs();
  version.outputs = version.session->outputs();
  if (version.texts != nullptr) {
    version.inputs = version.texts->client_inputs;
    version.outputs = version.texts->client_outputs;
  }
  if (version.writes_texts) {
    version.inputs = GenerationInputs();
    version.outputs = GenerationOutputs();
  }
  if (version.sequence == nullptr) return;
  version.inputs.clear();
  version.outputs.clear();
  for (const size_t i : version.sequence->client_inputs) {
    version.inputs.push_back(version.session->inputs()[i]);
  }
  for (const size_t i : version.sequence->client_outputs) {
    version.outputs.push_back(version.session->outputs()[i]);
  }
}

// Whether DecoderPlan::AskOf brought it inputs that the model's file does not have.
bool HasOwnInputs(const InferenceSession& session) {
  const auto& inputs = session.inputs();
  return std::any_of(inputs.begin(), inputs.end(), [](const auto& input) {
    return input.name == LastRows::kInput || input.name == DroppedTokens::kInput;
  });
}

// ": fused runs 12 nodes, cpu 3"; empty where it is the CPU alone.
std::string ProvidersText(const ModelInfo& info) {
  std::string text;
  bool device = false;
  for (const auto& [provider, nodes] : info.nodes_by_provider) {
    if (provider == "session") continue;
    device = device || provider != "cpu";
    text += StrCat(text.empty() ? ": " : ", ", provider, text.empty() ? " runs " : " ", nodes,
                   text.empty() ? " nodes" : "");
  }
  return device ? text : "";
}

}  // namespace

ModelLoader::ModelLoader(SessionOptions session, Scheduler& scheduler, ServerMetrics& metrics,
                         LoadSession load, FindProviders find_providers)
    : session_(std::move(session)),
      scheduler_(scheduler),
      metrics_(metrics),
      load_(std::move(load)),
      find_providers_(std::move(find_providers)) {}

namespace {

// All sequences of a model that writes texts take their steps in one run: the processors have
// nothing else to do for it.
int64_t ThreadsOf(const WantedVersion& wanted) {
  const ModelSettings& settings = wanted.settings;
  const bool has_all =
      settings.threads == 0 && SaysGeneration(settings.generation, TextFolderOf(wanted.path));
  return has_all ? AvailableCores() : settings.threads;
}

}  // namespace

std::shared_ptr<ThreadPool> ModelLoader::PoolOf(int64_t threads) {
  if (threads == 0 || (session_.pool != nullptr && threads == session_.pool->threads())) {
    return session_.pool;
  }
  auto& pool = pools_[threads];
  if (pool == nullptr) pool = std::make_shared<ThreadPool>(static_cast<int>(threads));
  return pool;
}

Result<std::shared_ptr<ModelVersion>> ModelLoader::Load(const WantedVersion& wanted,
                                                        std::shared_ptr<MemoryAccount> memory,
                                                        const Way& way) {
  ONNXD_RETURN_IF_ERROR(wanted.fault);
  const auto begin = Clock::now();
  SessionOptions options = session_;
  options.memory = memory;
  options.pool = PoolOf(ThreadsOf(wanted));
  if (!wanted.settings.precision.empty()) {
    options.precision = *PrecisionFromName(wanted.settings.precision);
  }
  if (find_providers_) {
    ONNXD_ASSIGN_OR_RETURN(options.providers, find_providers_(wanted.settings));
  }
  // Of the thread that loads as well, should it stay behind.
  struct Loaded {
    std::optional<Result<std::unique_ptr<InferenceSession>>> session;
    Plans plans;
    int64_t bytes = 0;  // before any run
  };
  const auto loaded = std::make_shared<Loaded>();
  const auto work = [loaded, options, wanted, load = load_, trusted = way.trusts_files] {
    auto& result = loaded->session;
    SessionOptions writing = options;
    if (MayWriteTexts(wanted)) DecoderPlan::AskOf(writing);
    result = LoadUnchanged(wanted, trusted, [&] { return load(wanted.path, writing); });
    if (!result->ok()) return;
    auto plans = PlansOf(wanted, ***result, options);
    if (plans.ok() && plans->generation == nullptr && HasOwnInputs(***result)) {
      // Its clients' inputs are the model's own.
      result.reset();
      result = LoadUnchanged(wanted, trusted, [&] { return load(wanted.path, options); });
      if (!result->ok()) return;
      plans = PlansOf(wanted, ***result, options);
    }
    loaded->bytes = options.memory->bytes();
    const InferenceSession& session = ***result;
    if (!plans.ok()) {
      result = plans.status();
      return;
    }
    loaded->plans = *std::move(plans);
    // One that writes texts had its trial.
    if (!wanted.settings.warm_up || loaded->plans.generation != nullptr) return;
    const Status warmed = CheckWarmUp(session, RunOnce(session, 1, nullptr));
    if (!warmed.ok() && wanted.settings.warm_up_failure == "refuse") result = warmed;
  };
  if (!RunBeside(work, way.priority, way.timeout, way.meanwhile)) {
    return DeadlineExceeded(
        StrCat("the load took longer than models.load_timeout_s, ", way.timeout.count(), " s"));
  }
  if (!loaded->session) return ResourceExhausted("no memory for the load");
  auto version = std::make_shared<ModelVersion>();
  ONNXD_ASSIGN_OR_RETURN(version->session, *std::move(loaded->session));
  ONNXD_RETURN_IF_ERROR(CheckBatching(wanted.settings, *version->session));
  version->model = wanted.model;
  version->version = wanted.version;
  version->settings = wanted.settings;
  version->sequence = std::move(loaded->plans.sequence);
  version->padding = std::move(loaded->plans.padding);
  version->texts = std::move(loaded->plans.texts);
  version->takes_texts = version->texts != nullptr;
  const auto generation = std::move(loaded->plans.generation);
  version->writes_texts = generation != nullptr;
  SetSignature(*version);
  ONNXD_RETURN_IF_ERROR(CheckDeclared(wanted.settings.declared, version->inputs, version->outputs));
  if (!wanted.settings.ignored.empty()) {
    LogWarning(
        StrCat("model '", wanted.model, "': without effect here: ", wanted.settings.ignored));
  }
  version->memory = std::move(memory);
  version->metrics =
      metrics_.ForModel(wanted.model, wanted.version, wanted.settings.duration_buckets_us);
  version->loaded = Clock::now();
  version->last_used = version->loaded;
  QueuePolicy policy = PolicyOf(wanted.settings);
  policy.runs_inline = policy.runs_inline && generation == nullptr;
  policy.is_admitted = generation != nullptr;
  std::vector<bool> outputs_on_device;
  if (generation != nullptr) outputs_on_device = generation->decoder.OutputsOnDevice();
  const BatchComputation computation = ComputationOf(*version, std::move(outputs_on_device));
  version->scheduled = std::make_shared<ScheduledModel>(wanted.model, computation, version->metrics,
                                                        std::move(policy));
  if (generation != nullptr) AddGenerator(generation, computation.make_input, *version);
  if (version->texts != nullptr) {
    const std::string name = StrCat(wanted.model, "/tokenizer");
    version->tokenizing = std::make_shared<ScheduledModel>(name, TokenizingOf(version->texts),
                                                           metrics_.ForModel(name, wanted.version),
                                                           PolicyOf(wanted.settings));
  }
  const std::chrono::duration<double> took = version->loaded - begin;
  version->metrics->SetLoadDuration(took);
  version->metrics->SetMemory(version->memory, loaded->bytes);
  const bool from_cache = version->session->from_cache();
  if (session_.cache != nullptr) metrics_.CountPreparedModel(from_cache ? "found" : "missing");
  LogInfo(StrCat("model '", wanted.model, "' version ", wanted.version,
                 from_cache ? " found in the cache, loaded in " : " loaded in ",
                 static_cast<int64_t>(took.count() * 1e6) / 1000, " ms",
                 ProvidersText(version->session->info())));
  return version;
}

void ModelLoader::AddGenerator(const std::shared_ptr<const GenerationPlan>& plan,
                               const TensorMaker& make, ModelVersion& version) {
  version.metrics->AddGeneration();
  const std::string name = StrCat(version.model, "/tokenizer");
  version.tokenizing = std::make_shared<ScheduledModel>(name, PromptTokensOf(plan),
                                                        metrics_.ForModel(name, version.version),
                                                        PolicyOf(version.settings));
  // States stay from run to run, in the version's account.
  const TensorMaker make_state = [make, memory = version.memory](DataType type,
                                                                 const Shape& shape) {
    const ChargeTo charge(memory.get());
    return make(type, shape);
  };
  version.generator =
      std::make_shared<Generator>(plan, scheduler_, version.scheduled,
                                  StateMemoryOf(plan->decoder, *version.session, make_state),
                                  version.session->KeepOutputMemory(), version.metrics);
  constexpr const char* kWays[] = {"one by one", "padded before their tokens",
                                   "padded behind their tokens"};
  LogInfo(StrCat("model '", version.model, "' writes texts: ", plan->context_length,
                 " tokens of context, sequences take steps ",
                 kWays[static_cast<size_t>(plan->decoder.joining)],
                 plan->decoder.in_place           ? ", states are written in place"
                 : plan->decoder.states_on_device ? ", states stay on the device"
                                                  : "",
                 plan->chat == nullptr ? "" : ", with a chat template"));
  if (plan->chat == nullptr && plan->has_chat_template) {
    LogWarning(StrCat("model '", version.model, "': ", plan->why_no_chat));
  }
}

void ModelLoader::TryBatches(const std::shared_ptr<const ModelVersion>& version, const Way& way) {
  if (version->writes_texts) return version->SetTrial("it writes texts: their steps share runs");
  const BatchingOptions& batching = version->settings.batching;
  const auto why = std::make_shared<std::string>();
  const auto work = [why, version, stopping = way.stopping] {
    const BatchingOptions& wanted = version->settings.batching;
    *why = WhyAlone(wanted, *version->session, *stopping);
    if (why->empty() && version->settings.warm_up) {
      WarmBatches(*version->session, BatchSettingsOf(wanted), stopping);
    }
  };
  // Each run of it has a deadline.
  if (!RunBeside(work, way.priority, std::chrono::hours(1), way.meanwhile)) return;
  if (way.stopping->load(std::memory_order_relaxed)) return;
  if (!why->empty()) {
    version->SetTrial(*why);
    LogInfo(StrCat("model '", version->model, "': requests run alone, max_batch_size 1: ", *why));
    return;
  }
  scheduler_.SetBatching(*version->scheduled, BatchSettingsOf(batching));
  version->SetTrial("");
  LogInfo(StrCat("model '", version->model, "': requests may share runs, up to ",
                 batching.max_batch_size, " rows"));
}

}  // namespace onnxd
