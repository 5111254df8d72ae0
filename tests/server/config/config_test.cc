#include <gtest/gtest.h>

#include "runtime/base/file.h"
#include "server/config/server_options.h"

namespace onnxd {
namespace {

std::string ErrorOf(const std::string& text) {
  ServerOptions options;
  const Status status = ApplyConfigText(text, "onnxd.yaml", options);
  return status.ok() ? "OK" : std::string(status.message());
}

TEST(Config, FileThenEnvironmentThenFlags) {
  ServerOptions options;
  ASSERT_TRUE(
      ApplyConfigText("server:\n  http_port: 9000\n  grpc_port: 9001\n", "f", options).ok());
  ASSERT_TRUE(ApplyEnvironment({{"ONNXD_SERVER_HTTP_PORT", "9100"}, {"HOME", "/"}}, options).ok());
  EXPECT_EQ(options.server.http_port, 9100);
  EXPECT_EQ(options.server.grpc_port, 9001);
  EXPECT_FALSE(ApplyEnvironment({{"ONNXD_SERVER_HTTP_PROT", "1"}}, options).ok());
}

TEST(Config, NullIsAWordWhereItIsAChoice) {
  for (const char* written : {"null", "\"null\""}) {
    ServerOptions options;
    options.server.json_non_finite = "token";
    ASSERT_EQ(
        ApplyConfigText(StrCat("server:\n  json_non_finite: ", written), "f", options).message(),
        "");
    EXPECT_EQ(options.server.json_non_finite, "null");
  }
  EXPECT_NE(ErrorOf("server:\n  bind: null\n").find("must be one value"), std::string::npos);
}

TEST(Config, NamesFileLineAndTheNearestKey) {
  EXPECT_EQ(ErrorOf("server:\n  htp_port: 1\n"),
            "onnxd.yaml:2:3: unknown key 'server.htp_port'; did you mean 'server.http_port'?");
  EXPECT_EQ(ErrorOf("sever:\n  bind: x\n"),
            "onnxd.yaml:1:1: unknown key 'sever'; did you mean 'server'?");
}

TEST(Config, RefusesWhatItCannotMean) {
  const std::pair<const char*, const char*> cases[] = {
      {"server:\n  http_port: 70000\n", "from 0 to 65535"},
      {"server:\n  http_port: 010\n", "'010' is not a whole number"},
      {"server:\n  http_port: 1e3\n", "is not a whole number"},
      {"server:\n  http_port: -1\n", "is not a whole number"},
      {"server:\n  http_port: 1\n  http_port: 2\n", "stands twice"},
      {"server: {}\nserver: {}\n", "stands twice"},
      {"server:\n  bind: [a]\n", "must be one value"},
      {"log:\n  level: loud\n", "is not one of"},
      {"a: &x 1\n", "anchor"},
      {"server: *x\n", "anchor"},
      {"server: !!python/object:os.system {}\n", "anchor"},
      {"server: {}\n---\nlog: {}\n", "second document"},
      {"server: [", "onnxd.yaml:"},
      {"- a\n", "must be a map"}};
  for (const auto& [text, wanted] : cases) {
    EXPECT_NE(ErrorOf(text).find(wanted), std::string::npos) << text << " -> " << ErrorOf(text);
  }
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "[";
  EXPECT_NE(ErrorOf(deep), "OK");
}

// The annotated file in config/ lists every key with its default, and nothing else.
TEST(Config, TheReferenceFileAgreesWithTheStruct) {
  ServerOptions from_file;
  const Status status = ApplyConfigFile(ONNXD_SOURCE_DIR "/config/onnxd.yaml", from_file);
  ASSERT_TRUE(status.ok()) << status.ToString();
  const ServerOptions defaults;
  for (const auto& key : OptionKeys()) {
    if (key.section == "models") continue;  // there the file names the embedded models
    EXPECT_EQ(key.get(from_file), key.get(defaults)) << key.section << "." << key.key;
  }
}

TEST(Config, TheReferenceFilesNameEveryKey) {
  const std::string server = *ReadFile(ONNXD_SOURCE_DIR "/config/onnxd.yaml", 1 << 20);
  for (const auto& key : OptionKeys()) {
    EXPECT_NE(server.find("\n  " + key.key + ": "), std::string::npos) << key.key;
  }
  const std::string model = *ReadFile(ONNXD_SOURCE_DIR "/config/model.yaml", 1 << 20);
  for (const auto& key : ModelSettingsKeys()) {
    const std::string margin = key.section.empty() ? "\n" : "\n  ";
    EXPECT_NE(model.find(margin + key.key + ": "), std::string::npos) << key.key;
  }
  for (const auto& key : ShadowKeys()) {
    EXPECT_NE(model.find("\n  " + key.key + ": "), std::string::npos) << key.key;
  }
  for (const auto& key : RollbackKeys()) {
    EXPECT_NE(model.find("\n  " + key.key + ": "), std::string::npos) << key.key;
  }
}

// A star in the comment of a key, or of its section, says that a change takes effect while serving.
TEST(Config, TheReferenceFileMarksWhatChangesWhileServing) {
  std::istringstream file(*ReadFile(ONNXD_SOURCE_DIR "/config/onnxd.yaml", 1 << 20));
  std::string section;
  bool section_marked = false;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.empty() || line[0] == '#' || colon == std::string::npos) continue;
    const bool marked = line.find("# *") != std::string::npos;
    if (line[0] != ' ') {
      section = line.substr(0, colon);
      section_marked = marked;
      continue;
    }
    const std::string key = section + "." + line.substr(2, colon - 2);
    EXPECT_EQ(marked || section_marked, ChangesWhileServing(key)) << key;
  }
}

TEST(Config, TheReferenceFileOfAModelHasTheDefaults) {
  ModelSettings settings;
  const Status status = ApplyModelSettings(
      *ReadFile(ONNXD_SOURCE_DIR "/config/model.yaml", 1 << 20), "model.yaml", settings);
  ASSERT_TRUE(status.ok()) << status.ToString();
  settings.batch_size_given = false;  // the file gives it
  EXPECT_EQ(settings, ModelSettings());
}

TEST(Config, AModelsOwnFileSaysWhatItWantsOtherwise) {
  ModelSettings settings;
  settings.batching.target_p99_ms = 20;
  const Status status = ApplyModelSettings(
      "pinned: true\nversions: [3, 7]\nbatching:\n  preferred_batch_size: [4, 8]\n", "m", settings);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(settings.pinned);
  EXPECT_EQ(settings.versions, "3,7");
  EXPECT_EQ(settings.batching.preferred_batch_size, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(settings.batching.target_p99_ms, 20);  // the server's
  EXPECT_FALSE(settings.batch_size_given);
}

TEST(Config, AModelsOwnFileNamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"pined: true\n", "m:1:1: unknown key 'pined'; did you mean 'pinned'?"},
      {"batching:\n  preferred_batch_size: [8, 4]\n", "not in ascending order"},
      {"batching:\n  preferred_batch_size: [512]\n", "is over the 256"},
      {"batching:\n  priority_levels: 2\n  default_priority_level: 3\n", "is over the 2"},
      {"batching: 3\n", "must be a map"},
      {"executors: {}\n", "must be one value"}};
  for (const auto& [text, wanted] : cases) {
    ModelSettings settings;
    const Status status = ApplyModelSettings(text, "m", settings);
    EXPECT_NE(std::string(status.message()).find(wanted), std::string::npos) << status.ToString();
  }
}

TEST(Config, AnEnsembleIsAListOfSteps) {
  ModelSettings settings;
  const Status status = ApplyModelSettings(
      "ensemble:\n  steps:\n"
      "  - {model: a, inputs: {x: raw}, outputs: {y: mid, z: side}}\n"
      "  - model: b\n    version: stable\n    inputs: {x: mid}\n    outputs: {y: end}\n",
      "m", settings);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_EQ(settings.ensemble.steps.size(), 2u);
  EXPECT_EQ(settings.ensemble.steps[1].version, "stable");
  EXPECT_EQ(InputsOf(settings.ensemble), (std::vector<std::string>{"raw"}));
  EXPECT_EQ(OutputsOf(settings.ensemble), (std::vector<std::string>{"side", "end"}));
}

TEST(Config, StatesAndPaddedDimensionsAreListsOfMaps) {
  ModelSettings settings;
  const Status status = ApplyModelSettings(
      "sequence:\n  states:\n  - {input: h, output: hn, shape: [2, 1, 64]}\n"
      "padding:\n- dimension: length\n  sizes: [8, 16]\n  values: {ids: 0, mask: 0.5}\n"
      "  mask: mask\n  tolerance: 1e-4\n",
      "m", settings);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_EQ(settings.sequence.states.size(), 1u);
  EXPECT_EQ(settings.sequence.states[0], (SequenceState{"h", "hn", {2, 1, 64}}));
  ASSERT_EQ(settings.padding.size(), 1u);
  EXPECT_EQ(settings.padding[0],
            (PaddedDimension{"length", {8, 16}, {{"ids", 0}, {"mask", 0.5}}, "mask", 1e-4}));
}

TEST(Config, WhatIsWrongWithAListOfMapsIsNamed) {
  const std::string a = "ensemble:\n  steps:\n  - {model: a, inputs: {x: r}, outputs: {y: m}}\n";
  const std::pair<std::string, const char*> cases[] = {
      {"ensemble:\n  steps: 3\n", "m:2:10: 'ensemble.steps': must be a list of maps"},
      {"ensemble:\n  steps: [3]\n", "m:2:11: 'ensemble.steps': must be a list of maps"},
      {"ensemble:\n  steps:\n  - {modl: a}\n",
       "m:3:6: unknown key 'ensemble.steps.modl'; did you mean 'ensemble.steps.model'?"},
      {"ensemble:\n  step: []\n", "did you mean 'ensemble.steps'?"},
      {"ensemble:\n  steps:\n  - {model: a, inputs: x, outputs: {y: m}}\n",
       "'ensemble.steps.inputs': must be a map"},
      {"ensemble:\n  steps:\n  - {model: a, inputs: {x: [1]}, outputs: {y: m}}\n",
       "'ensemble.steps.inputs.x': must be one value"},
      {"ensemble:\n  steps:\n  - {model: a, model: b}\n", "'model' stands twice"},
      {"ensemble:\n  steps:\n  - {inputs: {x: r}, outputs: {y: m}}\n", "step 1: it names no model"},
      {"ensemble:\n  steps:\n  - {model: a, outputs: {y: m}}\n", "step 1: it has no inputs"},
      {a + "  - {model: b, inputs: {x: m}, outputs: {y: m}}\n", "tensor 'm' is made twice"},
      {"ensemble:\n  steps:\n  - {model: a, inputs: {x: m}, outputs: {y: m}}\n",
       "its steps wait for each other"},
      {a + "  outputs: [z]\n", "no step makes the output 'z'"},
      {a + "sequence:\n  enabled: true\n", "not for itself"},
      {"padding:\n- {sizes: [4]}\n", "it names no dimension"},
      {"padding:\n- {dimension: n, sizes: [8, 4], values: {x: 0}}\n", "not in ascending order"},
      {"padding:\n- {dimension: n, sizes: [8], values: {x: none}}\n", "'none' is no number"},
      {"padding:\n- {dimension: n, sizes: [8], values: {x: 0}, mask: y}\n", "its mask 'y'"},
      {"sequence:\n  states:\n  - {input: h}\n", "both an input and an output"},
      {"sequence:\n  start_input: h\n  states:\n  - {input: h, output: g}\n", "set twice"},
      {"sequence:\n  enabled: true\nresponse_cache:\n  enabled: true\n", "neither with"}};
  for (const auto& [text, wanted] : cases) {
    ModelSettings settings;
    const Status status = ApplyModelSettings(text, "m", settings);
    EXPECT_NE(std::string(status.message()).find(wanted), std::string::npos)
        << text << status.ToString();
  }
}

TEST(Config, AModelsVersionsHaveLabelsAndShares) {
  ModelSettings settings;
  const std::string text =
      "split:\n  stable: 90\n  canary: 9\n  2: 1\nlabels:\n  canary: 4\n  stable: 3\n";
  ASSERT_EQ(ApplyModelSettings(text, "model.yaml", settings).message(), "");
  const RolloutSettings& rollout = settings.rollout;
  EXPECT_EQ(rollout.labels, (std::map<std::string, std::string>{{"canary", "4"}, {"stable", "3"}}));
  ASSERT_EQ(rollout.split.size(), 3u);
  EXPECT_EQ(rollout.split[0], (RolloutSettings::Share{"stable", 90}));
  EXPECT_EQ(rollout.split[2], (RolloutSettings::Share{"2", 1}));
  EXPECT_EQ(rollout.Resolve("canary"), "4");
  EXPECT_EQ(rollout.Resolve("7"), "7");
}

TEST(Config, LabelsAndSharesThatMeanNothingAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"labels:\n  canary: newest\n", "model.yaml:2:11: 'labels.canary': must be the number"},
      {"labels:\n  canary: 0\n", "must be the number"},
      {"labels:\n  canary: [1, 2]\n", "must be one value"},
      {"labels:\n  4: 4\n", "a label is a letter"},
      {"labels:\n  latest: 4\n", "a label is a letter"},
      {"labels:\n  a/b: 4\n", "a label is a letter"},
      {"labels:\n  a: 4\n  a: 5\n", "stands twice"},
      {"split:\n  canary: 10\n", "'split.canary': no version has this label"},
      {"split:\n  1: 0\n  2: 0\n", "all shares are zero"},
      {"split:\n  1: -1\n", "is not a whole number"},
      {"split:\n  1: 10%\n", "is not a whole number"},
      {"split:\n  01: 1\n", "must be the number"}};
  for (const auto& [text, wanted] : cases) {
    ModelSettings settings;
    const Status status = ApplyModelSettings(text, "model.yaml", settings);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(wanted), std::string_view::npos) << status.ToString();
  }
}

TEST(Config, KeysThatContradictEachOtherAreRefused) {
  ServerOptions options;
  EXPECT_TRUE(CheckOptions(options).ok());
  options.limits.body_bytes = options.limits.buffered_bytes + 1;
  EXPECT_NE(CheckOptions(options).message().find("'limits.body_bytes'"), std::string_view::npos);
  options = {};
  options.limits.memory_bytes = options.limits.body_bytes - 1;
  EXPECT_NE(CheckOptions(options).message().find("'limits.memory_bytes'"), std::string_view::npos);
}

TEST(Config, NamesTheKeysThatChanged) {
  ServerOptions before, after;
  after.batching.max_batch_size = 8;
  after.server.http_port = 1;
  EXPECT_EQ(ChangedKeys(before, after),
            (std::vector<std::string>{"server.http_port", "batching.max_batch_size"}));
  EXPECT_TRUE(ChangesWhileServing("batching.max_batch_size"));
  EXPECT_FALSE(ChangesWhileServing("server.http_port"));
}

}  // namespace
}  // namespace onnxd
