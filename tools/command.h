// The sub-commands of the one binary, a file each; main.cc reads the command line into their flags.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/split_list.h"
#include "runtime/device/program_cache.h"
#include "runtime/plugin/plugin.h"
#include "runtime/providers/default_providers.h"
#include "runtime/session/inference_session.h"
#include "server/config/provider_settings.h"
#include "tools/http_client.h"

namespace onnxd {

// By the names that options have.
const std::map<std::string, LogLevel>& LogLevels();

// What the program's exit tells scripts.
enum ExitCode {
  kExitOk = 0,
  kExitFailure = 1,      // the model does not load or run, or outputs differ
  kExitUsage = 2,        // the command line or the configuration is wrong
  kExitPortInUse = 3,    // a port cannot be bound
  kExitModelFailed = 4,  // `serve MODEL.onnx` whose model does not load
  kExitDeviceLost = 5,   // a device that models compute on stopped working
};

// Compiled kernels beside the prepared models; one for each cache.
std::shared_ptr<ProgramCache> ProgramCacheIn(const PreparedModelCache& cache);

// What MakeProviders takes. Requires settings whose keys were set. `cache` may be null.
ProviderOptions ProviderOptionsOf(const ProviderDeviceSettings& settings,
                                  const PreparedModelCache* cache,
                                  std::vector<std::shared_ptr<const Plugin>> plugins);

// The options that run, bench, inspect and serve share.
struct SessionFlags {
  std::string providers, plugins;
  std::string optimization = "all";
  std::string cache;  // folder of prepared models; empty: none
  std::string precision = "fp32";
  bool denormals_as_zero = true;
  int threads = 1;
  std::string provider_options;

  Result<SessionOptions> ToOptions() const;
};

struct RunFlags {
  std::string model, inputs, outputs, compare;
  double relative = 1e-3, absolute = 1e-5;
  SessionFlags session;
};

struct BenchFlags {
  std::string model;
  std::vector<std::string> shapes, ranges;  // "name=1x3x8x8", "name=lo:hi"
  std::string inputs;                       // folder as in RunFlags; empty: random values
  std::string compare;  // folder with expected outputs, checked before anything is timed
  double relative = 1e-3, absolute = 1e-5;
  int iterations = 100;
  int callers = 1;         // threads that run the session at once
  bool on_device = false;  // inputs and outputs stay in the device's memory
  bool keeps_outputs = false;
  bool paced = false;   // time runs when a line on standard input asks for some
  std::string profile;  // file for a Chrome trace; empty: none
  bool json = false;
  SessionFlags session;
};

struct CompileFlags {
  std::string model;
  std::vector<std::string> profiles;  // "name=1x8:1x128:8x512"
  double tolerance = 0;               // of outputs at a reduced precision; 0: not asked
  std::vector<std::string> samples;   // folders with inputs
  bool texts = false;                 // as a language model that `serve --texts` has write
  SessionFlags session;
};

struct InspectFlags {
  std::string model;
  bool json = false;
  bool values = false;      // every computed value with its inferred type
  bool partitions = false;  // print which provider runs each node, and why
  std::string stage;        // print the graph as it is after this stage; empty: the summary
  SessionFlags session;
};

struct CheckFlags {
  std::string model;
  SessionFlags session;
};

struct OptimizeFlags {
  std::string model, output;
  SessionFlags session;
};

struct TokenizerFlags {
  std::string tokenizer, output;
  int64_t max_length = 0;  // tokens of a text; 0: what the tokenizer's files say
  bool pairs = false;      // of texts, such as a question and a passage
};

struct KeysFlags {
  std::string file;
  std::string name;
  // Of `create`: its role and what limits it; empty or 0: nothing does.
  std::string role, expires, models;
  int64_t rate = 0, concurrency = 0;
  bool certificate = false;  // no key: its name is the common name of one
};

struct ServeFlags {
  std::string config;
  std::map<std::string, std::string> overrides;  // "section.key" -> value, from flags
};

struct ClientFlags {
  ServerAddress server;
  bool ready = false;               // of `health`: ready to answer, not just alive
  std::string model, input;         // input: a file of JSON, "-": standard input
  bool grpc = false;                // of `predict`: over gRPC
  bool load = false;                // of a model's control: load, else unload
  std::string label, version;       // of a model
  std::vector<std::string> shares;  // VERSION=WEIGHT each
};

// Each returns an ExitCode.
int Run(const RunFlags& flags);
int Bench(const BenchFlags& flags);
int Compile(const CompileFlags& flags);
int Inspect(const InspectFlags& flags);
int Check(const CheckFlags& flags);
int Optimize(const OptimizeFlags& flags);
int WriteTokenizer(const TokenizerFlags& flags);
int Serve(const ServeFlags& flags);
int CreateKey(const KeysFlags& flags);
int ListKeys(const KeysFlags& flags);
int RevokeKey(const KeysFlags& flags);
int CheckConfig(const ServeFlags& flags);
int PrintConfig(const ServeFlags& flags);
int Health(const ClientFlags& flags);
int PredictOnServer(const ClientFlags& flags);
int PredictOverGrpc(const ClientFlags& flags);
int ListModels(const ClientFlags& flags);
int ControlModel(const ClientFlags& flags);
int ShowRollout(const ClientFlags& flags);
int LabelModel(const ClientFlags& flags);  // an empty version: as in its model.yaml
int SplitModel(const ClientFlags& flags);  // no shares: as in its model.yaml
int RollBackModel(const ClientFlags& flags);
int ReleaseModel(const ClientFlags& flags);

// Prints "onnxd: message" to stderr and returns kExitFailure.
int Fail(const Status& status);

}  // namespace onnxd
