// onnxd: serves ONNX models. This file reads the command line and calls the sub-command.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <functional>
#include <system_error>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "tools/command.h"
#include "tools/completion.h"

namespace onnxd {
namespace {

using RunCommand = std::function<int()>;

// Not CLI11's envname: it reads the variables of sub-commands that were not called as well, into
// the values that these share with the one that was, over what the command line said.
CLI::Option* AddWithEnvironment(CLI::App& command, const char* name, std::string& value,
                                const char* variable, const std::string& help) {
  if (const char* given = std::getenv(variable)) value = given;
  return command.add_option(name, value, StrCat(help, " (Env:", variable, ")"));
}

void AddSession(CLI::App& command, SessionFlags& flags) {
  command.add_option("--providers", flags.providers,
                     "Execution providers by priority, separated by commas: fused, cuda, opencl, "
                     "cpu, those of plug-ins (default: cpu)");
  command.add_option("--plugins", flags.plugins,
                     "Shared libraries with operators or providers, separated by commas");
  command.add_option("--provider-options", flags.provider_options,
                     "Of these, as model.yaml has them: NAME=VALUE, separated by commas");
  command.add_option("--optimization", flags.optimization, "Graph optimization level")
      ->check(CLI::IsMember({"disable", "basic", "extended", "all"}))
      ->capture_default_str();
  command
      .add_option("--precision", flags.precision,
                  "Of large products; fp32 where the processor computes the others no faster")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16", "bf16x3"}))
      ->capture_default_str();
  command.add_flag("--denormals-as-zero,!--keep-denormals", flags.denormals_as_zero,
                   "Take floats below 1.18e-38 for zeros while computing (the default), or not");
  command.add_option("--threads", flags.threads, "Threads that compute one request")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--log-level",
          [](const std::string& name) { ConfigureLog(LogLevels().at(name), LogFormat::kText); },
          "Of lines on stderr; debug tells what each way of computing a node took, where that was "
          "measured")
      ->check(CLI::IsMember(LogLevels()))
      ->default_str("info");
}

void AddCache(CLI::App& command, SessionFlags& flags) {
  command.add_option("--cache", flags.cache,
                     "Folder for prepared models: later loads of the same model find it there");
}

void AddModel(CLI::App& command, std::string& model) {
  command.add_option("MODEL", model, "ONNX model file")->required();
}

void AddRun(CLI::App& app, RunFlags& flags, RunCommand& run) {
  CLI::App* command = app.add_subcommand("run", "Run a model once on inputs in files");
  AddModel(*command, flags.model);
  command
      ->add_option("--inputs", flags.inputs,
                   "Folder with input_0.pb, input_1.pb, ... (TensorProto, SequenceProto or "
                   "OptionalProto, as in ONNX test data) or NAME.npy")
      ->required();
  command->add_option("--outputs", flags.outputs, "Folder to write output_0.pb, ... into");
  command->add_option(
      "--compare", flags.compare,
      "Folder with expected output_0.pb, ... or NAME.npy; exit code 1 when they differ");
  command->add_option("--rtol", flags.relative, "Relative tolerance of --compare")
      ->capture_default_str();
  command->add_option("--atol", flags.absolute, "Absolute tolerance of --compare")
      ->capture_default_str();
  AddSession(*command, flags.session);
  AddCache(*command, flags.session);
  command->callback([&] { run = [&] { return Run(flags); }; });
}

void AddBench(CLI::App& app, BenchFlags& flags, RunCommand& run) {
  CLI::App* command = app.add_subcommand("bench", "Measure a model's latency on random inputs");
  AddModel(*command, flags.model);
  command
      ->add_option("--shape", flags.shapes,
                   "Shape of an input, NAME=1x3x224x224; free dimensions are 1 without it")
      ->allow_extra_args(false);
  command
      ->add_option("--range", flags.ranges,
                   "Values of an input, NAME=LO:HI (default -1:1, integers 0:2)")
      ->allow_extra_args(false);
  command->add_option("--inputs", flags.inputs,
                      "Folder with the inputs, as for run, instead of random values");
  CLI::Option* const on_device = command->add_flag(
      "--on-device", flags.on_device, "Leave inputs and outputs in the memory of the device");
  command->add_flag("--keep-outputs", flags.keeps_outputs,
                    "Keep the memory of outputs for the next run, as for models that write texts");
  command
      ->add_option("--compare", flags.compare,
                   "Folder with expected outputs, compared before anything is timed")
      ->excludes(on_device);
  command->add_option("--rtol", flags.relative, "Relative tolerance of --compare")
      ->capture_default_str();
  command->add_option("--atol", flags.absolute, "Absolute tolerance of --compare")
      ->capture_default_str();
  command->add_option("--iterations", flags.iterations, "Timed runs")
      ->check(CLI::Range(1, 100000000))
      ->capture_default_str();
  command
      ->add_option("--callers", flags.callers,
                   "Threads that run the model at once; a run's time is then the whole time by the "
                   "runs of all")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--paced", flags.paced,
                    "Take turns with another program: for each number N on a line of standard "
                    "input, run N times and print the mean in ms; the report follows at its end");
  command->add_option("--profile", flags.profile,
                      "Time each node: a file for the median run as Chrome trace JSON; prints a "
                      "table per operator");
  command->add_flag("--json", flags.json, "One JSON object instead of text");
  AddSession(*command, flags.session);
  AddCache(*command, flags.session);
  command->callback([&] { run = [&] { return Bench(flags); }; });
}

void AddCompile(CLI::App& app, CompileFlags& flags, RunCommand& run) {
  CLI::App* command = app.add_subcommand(
      "compile", "Prepare a model ahead of time: kernels of a device, packed weights");
  AddModel(*command, flags.model);
  command
      ->add_option(
          "--profile", flags.profiles,
          "Shapes of an input that it is prepared for, NAME=MIN:OPT:MAX like "
          "ids=1x8:1x128:8x512, or fewer; others work, too, and are prepared when they come")
      ->allow_extra_args(false);
  command->add_flag("--texts", flags.texts,
                    "As `serve --texts` has a language model write: prompts, and steps of several "
                    "texts; profiles are of input_ids, SEQUENCESxTOKENS");
  command
      ->add_option("--tolerance", flags.tolerance,
                   "With --precision fp16 or bf16: find which products have to stay float for the "
                   "outputs to differ by no more than this share of an output's largest magnitude")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--samples", flags.samples,
                   "Folder with input_N.pb or NAME.npy that --tolerance compares, as often as "
                   "needed; else random inputs")
      ->allow_extra_args(false);
  AddSession(*command, flags.session);
  AddCache(*command, flags.session);
  command->get_option("--cache")->required();
  command->callback([&] { run = [&] { return Compile(flags); }; });
}

void AddInspect(CLI::App& app, InspectFlags& flags, RunCommand& run) {
  CLI::App* command =
      app.add_subcommand("inspect", "Show a model's signature, opsets, metadata and operators");
  AddModel(*command, flags.model);
  command->add_flag("--json", flags.json, "One JSON object instead of text");
  command->add_flag("--values", flags.values,
                    "Also every value that a node computes, with its inferred type and shape");
  command->add_flag("--partitions", flags.partitions,
                    "Print instead which provider runs each node, and why not another");
  command
      ->add_option("--stage", flags.stage,
                   "Print the graph instead, a node a line, as it is after a stage: as the file "
                   "has it, with functions expanded, after the standard passes, or as it runs")
      ->check(CLI::IsMember({"loaded", "expanded", "optimized", "final"}));
  AddSession(*command, flags.session);
  command->callback([&] { run = [&] { return Inspect(flags); }; });
}

void AddCheck(CLI::App& app, CheckFlags& flags, RunCommand& run) {
  CLI::App* command = app.add_subcommand("check", "Check that a model is valid and can be served");
  AddModel(*command, flags.model);
  AddSession(*command, flags.session);
  command->callback([&] { run = [&] { return Check(flags); }; });
}

void AddOptimize(CLI::App& app, OptimizeFlags& flags, RunCommand& run) {
  CLI::App* command = app.add_subcommand(
      "optimize", "Save a model as the optimizer leaves it, for onnxd or onnxruntime");
  AddModel(*command, flags.model);
  command->add_option("OUTPUT", flags.output, "The ONNX file to write")->required();
  AddSession(*command, flags.session);
  command->callback([&] { run = [&] { return Optimize(flags); }; });
}

void AddTokenizer(CLI::App& app, TokenizerFlags& flags, RunCommand& run) {
  CLI::App* command = app.add_subcommand(
      "tokenizer", "Make a model of a tokenizer.json: texts to the inputs of an encoder");
  command->add_option("TOKENIZER", flags.tokenizer, "tokenizer.json, or the folder that has it")->required();
  command->add_option("OUTPUT", flags.output, "The ONNX file to write")->required();
  command->add_option("--max-length", flags.max_length,
                      "Tokens that are kept of a text (what the tokenizer's files say)")
      ->check(CLI::Range(1, 1 << 24));
  command->add_flag("--pairs", flags.pairs, "Of two texts, text and text_pair, as rerankers take them");
  command->callback([&] { run = [&] { return WriteTokenizer(flags); }; });
}

void AddServe(CLI::App& app, ServeFlags& flags, RunCommand& run) {
  CLI::App* command = app.add_subcommand("serve", "Serve models over REST and gRPC");
  const auto override_key = [&flags, command](const char* name, const char* key, const char* help) {
    return command->add_option_function<std::string>(
        name, [&flags, key](const std::string& value) { flags.overrides[key] = value; }, help);
  };
  command->add_option_function<std::vector<std::string>>(
      "MODEL",
      [&flags](const std::vector<std::string>& paths) {
        flags.overrides["models.repository"] = StrJoin(paths, ",");
      },
      "A MODEL.onnx, or repository folders with NAME/VERSION/model.onnx");
  command->add_option("--config", flags.config, "YAML configuration file");
  override_key("--bind", "server.bind", "Address to listen on (default 127.0.0.1)");
  override_key("--http-port", "server.http_port", "REST port, 0 picks one (default 8000)");
  override_key("--grpc-port", "server.grpc_port", "gRPC port, 0 picks one (default 8001)");
  override_key("--metrics-port", "server.metrics_port", "Metrics port, 0 picks one (default 8002)");
  override_key("--default-model", "models.default_model", "What /predict means without a name");
  override_key("--model-name", "models.model_name", "The name of a single-file model");
  override_key("--providers", "runtime.providers", "Execution providers by priority");
  override_key("--plugins", "runtime.plugins", "Shared libraries with custom operators");
  override_key("--optimization", "runtime.optimization", "disable, basic, extended or all");
  override_key("--threads", "runtime.threads", "Threads that compute one request");
  override_key("--cache", "runtime.cache_dir", "Folder for prepared models; none without it");
  override_key("--log-level", "log.level", "debug, info, warning, error or off");
  command->add_flag_callback(
      "--texts", [&flags] { flags.overrides["models.texts"] = "true"; },
      "Models with a tokenizer.json beside them take texts");
  command->callback([&] { run = [&] { return Serve(flags); }; });
}

void AddKeys(CLI::App& app, KeysFlags& flags, RunCommand& run) {
  CLI::App* keys = app.add_subcommand("keys", "Create, list and revoke API keys");
  keys->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, int (*command)(const KeysFlags&)) {
    CLI::App* verb = keys->add_subcommand(name, help);
    AddWithEnvironment(*verb, "--file", flags.file, "ONNXD_ACCESS_KEY_FILE",
                       "The key file (access.key_file)")
        ->required(flags.file.empty());
    verb->callback([&flags, &run, command] { run = [&flags, command] { return command(flags); }; });
    return verb;
  };
  CLI::App* create = add("create", "Print a new key, and note its hash in the file", CreateKey);
  create->add_option("NAME", flags.name, "How lists and logs call it")->required();
  create->add_option("--role", flags.role, "What its bearer may do")
      ->check(CLI::IsMember({"predict", "read", "admin"}))
      ->required();
  create->add_flag("--certificate", flags.certificate,
                   "No key: clients whose certificate has NAME as its common name");
  create->add_option("--expires", flags.expires,
                     "Day of UTC from which on it is refused, 2027-01-31");
  create->add_option("--models", flags.models,
                     "Names it is for, separated by commas; * is any text");
  create->add_option("--rate", flags.rate, "Requests a second")->check(CLI::PositiveNumber);
  create->add_option("--concurrency", flags.concurrency, "Requests at once")
      ->check(CLI::PositiveNumber);
  add("list", "Show names, roles and limits", ListKeys);
  add("revoke", "Remove a key from the file; a running server follows at its next SIGHUP",
      RevokeKey)
      ->add_option("NAME", flags.name, "The key's name")
      ->required();
}

void AddConfig(CLI::App& app, ServeFlags& flags, RunCommand& run) {
  CLI::App* config =
      app.add_subcommand("config", "Check or show what `serve` would be configured to");
  config->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, int (*command)(const ServeFlags&)) {
    CLI::App* verb = config->add_subcommand(name, help);
    verb->add_option("FILE", flags.config,
                     "YAML configuration file; to check, also a model.yaml or config.pbtxt");
    verb->callback([&flags, &run, command] { run = [&flags, command] { return command(flags); }; });
  };
  add("check", "Say ok, or what is wrong (exit code 2)", CheckConfig);
  add("print", "Each key's value and where it comes from: default, file, environment", PrintConfig);
}

void AddServer(CLI::App& command, ServerAddress& server) {
  AddWithEnvironment(
      command, "--url", server.url, "ONNXD_URL",
      StrCat("http://HOST:PORT, https://HOST:PORT or unix:/PATH (default ", kRestUrl, ")"));
  AddWithEnvironment(command, "--key", server.key, "ONNXD_API_KEY",
                     "API key; better in the environment");
  command.add_option("--ca", server.ca, "PEM file of the server's certificate authority");
  command.add_option("--timeout", server.timeout_s, "Seconds to wait")->check(CLI::Range(1, 86400));
}

void AddRollout(CLI::App& models, ClientFlags& flags, RunCommand& run) {
  const auto add = [&](const char* name, const char* what, int (*command)(const ClientFlags&)) {
    CLI::App* added = models.add_subcommand(name, what);
    added->add_option("MODEL", flags.model, "Its name")->required();
    AddServer(*added, flags.server);
    added->callback(
        [&flags, &run, command] { run = [&flags, command] { return command(flags); }; });
    return added;
  };
  add("rollout", "Labels of a model's versions, and shares of its requests", ShowRollout);
  CLI::App* label = add("label", "Name a version", LabelModel);
  label->add_option("LABEL", flags.label, "Its name, like stable")->required();
  label->add_option("VERSION", flags.version, "Its number; none: as in the model.yaml");
  add("split", "Share a model's requests among versions", SplitModel)
      ->add_option("SHARES", flags.shares,
                   "VERSION=WEIGHT each, like stable=90 canary=10; none: as in the model.yaml");
  add("rollback", "Take a version back at once, until it is released", RollBackModel)
      ->add_option("VERSION", flags.version,
                   "Its number or label; none: the second of the split, else the newest");
  add("release", "Let a version that was rolled back serve again", ReleaseModel)
      ->add_option("VERSION", flags.version, "Its number")
      ->required();
}

void AddClient(CLI::App& app, ClientFlags& flags, RunCommand& run) {
  CLI::App* health = app.add_subcommand("health", "Ask a server how it is; exit code 0: well");
  health->add_flag("--ready", flags.ready, "Whether it is ready to answer, not just alive");
  health->add_option("URL", flags.server.url, "As --url");
  AddServer(*health, flags.server);
  health->callback([&] { run = [&] { return Health(flags); }; });
  CLI::App* predict = app.add_subcommand("predict", "Ask a server's model for a prediction");
  predict->add_option("MODEL", flags.model, "Its name")->required();
  predict
      ->add_option("--input", flags.input,
                   "File of JSON: the input, or a body of /predict; -: stdin")
      ->required();
  predict->add_flag("--grpc", flags.grpc,
                    StrCat("Ask over gRPC; then --url is of that port (default ", kGrpcUrl, ")"));
  AddServer(*predict, flags.server);
  predict->callback(
      [&] { run = [&] { return flags.grpc ? PredictOverGrpc(flags) : PredictOnServer(flags); }; });
  CLI::App* models = app.add_subcommand("models", "List, load and unload a server's models");
  models->require_subcommand(1);
  CLI::App* list = models->add_subcommand("list", "Name, version and state of each");
  AddServer(*list, flags.server);
  list->callback([&] { run = [&] { return ListModels(flags); }; });
  for (const bool load : {true, false}) {
    CLI::App* control =
        models->add_subcommand(load ? "load" : "unload", load ? "Load, or load again" : "Unload");
    control->add_option("MODEL", flags.model, "Its name")->required();
    AddServer(*control, flags.server);
    control->callback([&flags, &run, load] {
      flags.load = load;
      run = [&flags] { return ControlModel(flags); };
    });
  }
  AddRollout(*models, flags, run);
}

void AddCompletion(CLI::App& app, std::string& shell, RunCommand& run) {
  CLI::App* completion = app.add_subcommand(
      "completion", "Print what a shell completes: source <(onnxd completion bash)");
  completion->add_option("SHELL", shell, "bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->required();
  completion->callback([&] {
    run = [&] {
      std::fputs(CompletionScript(app, shell).c_str(), stdout);
      return kExitOk;
    };
  });
}

// A daemon that cannot have its threads or files does not start.
int RunGuarded(const RunCommand& run) {
  try {
    return run();
  } catch (const std::system_error& error) {
    const bool threads = error.code() == std::errc::resource_unavailable_try_again;
    return Fail(ResourceExhausted(
        StrCat(error.what(), threads ? ": no more threads may be started (ulimit -u, TasksMax, "
                                       "pids.max)"
                                     : "")));
  } catch (const std::exception& error) {
    return Fail(Internal(error.what()));
  }
}

int Main(int argc, char** argv) {
  CLI::App app{"onnxd serves ONNX models over REST and gRPC with its own runtime."};
  app.set_version_flag("--version", "onnxd " ONNXD_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 success; 1 the model does not load or run, or outputs differ; 2 wrong "
      "command\n"
      "line or configuration; 3 a port is in use; 4 the model given to serve does not load; 5 a "
      "device\n"
      "that models compute on stopped working.\n"
      "`onnxd COMMAND --help` describes a command.");
  RunFlags run_flags;
  BenchFlags bench_flags;
  CompileFlags compile_flags;
  InspectFlags inspect_flags;
  CheckFlags check_flags;
  OptimizeFlags optimize_flags;
  TokenizerFlags tokenizer_flags;
  ServeFlags serve_flags;
  KeysFlags keys_flags;
  ClientFlags client_flags;
  RunCommand run;
  AddServe(app, serve_flags, run);
  AddRun(app, run_flags, run);
  AddBench(app, bench_flags, run);
  AddCompile(app, compile_flags, run);
  AddInspect(app, inspect_flags, run);
  AddCheck(app, check_flags, run);
  AddOptimize(app, optimize_flags, run);
  AddTokenizer(app, tokenizer_flags, run);
  AddKeys(app, keys_flags, run);
  AddConfig(app, serve_flags, run);
  AddClient(app, client_flags, run);
  std::string shell;
  AddCompletion(app, shell, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return RunGuarded(run);
}

}  // namespace
}  // namespace onnxd

int main(int argc, char** argv) {
  // glibc raises this threshold as large blocks are freed; the freed weights of a loading model
  // would then stay with the process.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  return onnxd::Main(argc, argv);
}
