#include "server/generation/generation_plan.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "runtime/text/tokenizer_json.h"
#include "server/generation/generation_files.h"
#include "server/generation/joining_trial.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostBytes = uint64_t{1} << 28;  // of a tokenizer's file
constexpr int64_t kUnknownContext = 2048;
constexpr const char* kTokenizer = "tokenizer.json";

Status ReadTokenizer(const fs::path& path, GenerationPlan& plan) {
  ONNXD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string(), kMostBytes));
  const auto config = ReadFile((path.parent_path() / "tokenizer_config.json").string(), kMostBytes);
  ONNXD_ASSIGN_OR_RETURN(JsonTokenizer parsed,
                         ParseTokenizerJson(text, config.ok() ? *config : ""));
  plan.tokenizer = std::move(parsed.tokenizer);
  ONNXD_ASSIGN_OR_RETURN(plan.token_decoder, ParseTokenDecoder(text));
  return Status::Ok();
}

std::vector<int64_t> StopTokens(const GenerationSettings& settings, const GenerationFiles& files,
                                const TokenDecoder& decoder) {
  std::vector<int64_t> tokens = files.stop_tokens;
  const auto named = files.special_tokens.find("eos_token");
  if (tokens.empty() && named != files.special_tokens.end()) {
    if (const auto number = decoder.NumberOf(named->second)) tokens.push_back(*number);
  }
  tokens.insert(tokens.end(), settings.stop_tokens.begin(), settings.stop_tokens.end());
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

void ReadChatTemplate(const std::string& text, GenerationPlan& plan) {
  plan.has_chat_template = !text.empty();
  if (text.empty()) {
    plan.why_no_chat = "the model has no chat template";
    return;
  }
  auto parsed = Template::Parse(text);
  if (parsed.ok()) {
    plan.chat = *std::move(parsed);
  } else {
    plan.why_no_chat = StrCat("the model's chat template: ", parsed.status().message());
  }
}

TensorSignature Texts(const char* name) {
  TensorSignature texts;
  texts.name = name;
  texts.type.kind = ValueType::Kind::kTensor;
  texts.type.element = DataType::kString;
  texts.type.shape = SymbolicShape{Dimension::Symbol("batch")};
  return texts;
}

}  // namespace

Result<std::shared_ptr<const GenerationPlan>> MakeGenerationPlan(const GenerationSettings& settings,
                                                                 const std::string& folder,
                                                                 const InferenceSession& session) {
  const auto plan = std::make_shared<GenerationPlan>();
  ONNXD_ASSIGN_OR_RETURN(plan->decoder, MakeDecoderPlan(session.inputs(), session.outputs()));
  const std::string file = settings.finds_files() ? kTokenizer : settings.tokenizer;
  ONNXD_RETURN_IF_ERROR(ReadTokenizer(fs::path(folder) / file, *plan));
  ONNXD_ASSIGN_OR_RETURN(GenerationFiles files, ReadGenerationFiles(settings, folder));
  plan->context_length = settings.context_length > 0 ? settings.context_length
                         : files.context_length > 0  ? files.context_length
                                                     : kUnknownContext;
  plan->decoder.context_length = plan->context_length;
  ONNXD_ASSIGN_OR_RETURN(const JoiningTrial trial, TryJoining(plan->decoder, session));
  Adopt(trial, plan->decoder);
  plan->stop_tokens = StopTokens(settings, files, *plan->token_decoder);
  plan->sampling = files.sampling;
  ReadChatTemplate(files.chat_template, *plan);
  if (!settings.chat_template.empty() && plan->chat == nullptr) {
    return InvalidArgument(plan->why_no_chat);
  }
  plan->special_tokens = std::move(files.special_tokens);
  plan->max_sequences = settings.max_sequences;
  plan->queue_requests = settings.queue_requests;
  plan->prefill_tokens = trial.takes_pieces ? settings.prefill_tokens : plan->context_length;
  return std::shared_ptr<const GenerationPlan>(plan);
}

std::vector<TensorSignature> GenerationInputs() { return {Texts("text_input")}; }
std::vector<TensorSignature> GenerationOutputs() { return {Texts("text_output")}; }

}  // namespace onnxd
