#include "server/http/completions.h"

#include <chrono>
#include <memory>
#include <utility>

#include "runtime/base/str_cat.h"
#include "server/http/completion_body.h"
#include "server/http/event_stream.h"
#include "server/http/find_model.h"
#include "server/http/log_probabilities.h"
#include "server/http/openai_error.h"
#include "server/http/request_timeout.h"
#include "server/http/server_timing.h"
#include "server/inference/json_writer.h"
#include "server/inference/route_point.h"

namespace onnxd {
namespace {

// What all parts of one answer begin with.
class AnswerWriter {
 public:
  AnswerWriter(CompletionForm form, const std::string& request_id, const ModelVersion& version)
      : form_(form) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    begin_ = StrCat("\"id\":");
    AppendJsonString(begin_, StrCat(is_chat() ? "chatcmpl-" : "cmpl-", request_id));
    begin_ += StrCat(",\"created\":", std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                     ",\"model\":");
    AppendJsonString(begin_, version.model);
    begin_ += StrCat(",\"system_fingerprint\":\"version-", version.version, "\"");
  }

  std::string Whole(const std::vector<std::string>& texts, const GeneratedTexts& counts) const {
    std::string json = StrCat("{\"object\":\"", is_chat() ? "chat.completion" : "text_completion",
                              "\",", begin_, ",\"choices\":[");
    for (size_t i = 0; i < texts.size(); ++i) {
      json += StrCat(i == 0 ? "" : ",", "{\"index\":", i, ",");
      json += is_chat() ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":";
      AppendJsonString(json, texts[i]);
      size_t offset = 0;
      json += StrCat(is_chat() ? "}" : "", ",\"logprobs\":",
                     counts.tokens.empty() ? "null" : Scores(counts.tokens[i], offset),
                     ",\"finish_reason\":", counts.cut[i] ? "\"length\"" : "\"stop\"", "}");
    }
    return json + StrCat("],\"usage\":", UsageOf(counts), "}");
  }

  // Events of a stream: what an answer to a conversation begins with, pieces of the text, why it
  // ends, and what all came to. `offset`: characters of the answer's tokens before; it grows.
  std::string Begin(size_t answer) const {
    return Event(answer, R"("delta":{"role":"assistant","content":""})", "null", "null");
  }
  std::string Piece(const TextPiece& piece, size_t& offset) const {
    std::string text;
    AppendJsonString(text, piece.text);
    return Event(
        piece.answer,
        is_chat() ? StrCat("\"delta\":{\"content\":", text, "}") : StrCat("\"text\":", text),
        piece.tokens.empty() ? "null" : Scores(piece.tokens, offset), "null");
  }
  std::string End(const TextPiece& piece) const {
    return Event(piece.answer, is_chat() ? "\"delta\":{}" : "\"text\":\"\"", "null",
                 piece.end == TextPiece::End::kLength ? "\"length\"" : "\"stop\"");
  }
  std::string Usage(const GeneratedTexts& counts) const {
    return StrCat("{", Head(), ",\"choices\":[],\"usage\":", UsageOf(counts), "}");
  }

 private:
  bool is_chat() const { return form_ == CompletionForm::kChat; }
  std::string Head() const {
    return StrCat("\"object\":\"", is_chat() ? "chat.completion.chunk" : "text_completion", "\",",
                  begin_);
  }
  std::string Event(size_t answer, std::string_view content, std::string_view scores,
                    std::string_view finish) const {
    return StrCat("{", Head(), ",\"choices\":[{\"index\":", answer, ",", content,
                  ",\"logprobs\":", scores, ",\"finish_reason\":", finish, "}]}");
  }
  std::string Scores(std::span<const ScoredToken> tokens, size_t& offset) const {
    return LogProbabilities(form_, tokens, offset);
  }
  static std::string UsageOf(const GeneratedTexts& counts) {
    return StrCat("{\"prompt_tokens\":", counts.prompt_tokens,
                  ",\"completion_tokens\":", counts.generated_tokens,
                  ",\"total_tokens\":", counts.prompt_tokens + counts.generated_tokens, "}");
  }

  const CompletionForm form_;
  std::string begin_;
};

class StreamedAnswer {
 public:
  StreamedAnswer(CompletionForm form, AnswerWriter writer, const CompletionBody& asked,
                 HttpRespond respond)
      : is_chat_(form == CompletionForm::kChat),
        writer_(std::move(writer)),
        reports_usage_(asked.reports_usage),
        answers_(asked.prompts.size()),
        events_(std::move(respond)) {}

  void Write(const TextPiece& piece) {
    Begin(piece.answer);
    const bool has_content = !piece.text.empty() || !piece.tokens.empty();
    if (has_content) events_.Send(writer_.Piece(piece, answers_[piece.answer].offset));
    if (piece.end != TextPiece::End::kNot) events_.Send(writer_.End(piece));
  }

  void Finish(const Result<InferenceResponse>& result) {
    if (!result.ok()) return events_.Fail(OpenAiRefusal(result.status()));
    if (reports_usage_) events_.Send(writer_.Usage(*result->generated));
    events_.Send("[DONE]");
    events_.End();
  }

 private:
  struct Answer {
    bool begun = false;
    size_t offset = 0;
  };

  void Begin(size_t i) {
    Answer& answer = answers_[i];
    if (std::exchange(answer.begun, true)) return;
    if (is_chat_) events_.Send(writer_.Begin(i));
  }

  const bool is_chat_;
  const AnswerWriter writer_;
  const bool reports_usage_;
  std::vector<Answer> answers_;
  EventStream events_;
};

HttpResponse WholeAnswer(const AnswerWriter& writer, const InferenceResponse& result) {
  const auto texts = result.outputs[0].value.tensor().elements<std::string>();
  HttpResponse response;
  response.body = writer.Whole({texts.begin(), texts.end()}, *result.generated);
  response.may_compress = true;
  AddServerTiming(result, response);
  return response;
}

Tensor TextsOf(const std::vector<std::string>& texts) {
  return Tensor::Of<std::string>(Shape{static_cast<int64_t>(texts.size())}, texts);
}

}  // namespace

void HandleCompletions(InferenceService& service, CompletionForm form, HttpRequest request,
                       HttpRespond respond) {
  const auto fail = [&](const Status& status) {
    service.NoteUnrouted(Protocol::kHttp, status, request.origin);
    respond(OpenAiRefusal(status));
  };
  auto body = ReadCompletionBody(request.body, form, service.json().max_depth);
  if (!body.ok()) return fail(body.status());
  const auto found = FindGrantedModel(service, *request.grant, body->model, "",
                                      RoutePoint(request.origin.route_key));
  if (!found.ok()) return fail(found.status());
  const auto& version = *found;
  InferenceRequest inference;
  const Status status =
      version->writes_texts
          ? ApplyTimeout(request, inference)
          : InvalidArgument(StrCat("model '", version->model, "' writes no texts: see `generation`",
                                   " in config/model.yaml"));
  if (!status.ok()) {
    InferenceService::NoteRefusal(*version);
    return fail(status);
  }
  auto ticket = service.EnterClient(*version, request.origin);
  if (!ticket.ok()) return respond(OpenAiOverQuota(ticket.status()));
  AnswerWriter writer(form, request.origin.id, *version);
  inference.origin = std::move(request.origin);
  inference.generation = std::move(body->options);
  inference.inputs.push_back({version->inputs[0].name, TextsOf(body->prompts)});
  if (body->streams) {
    const auto stream =
        std::make_shared<StreamedAnswer>(form, std::move(writer), *body, std::move(respond));
    inference.generation.on_text = [stream](const TextPiece& piece) { stream->Write(piece); };
    return service.Infer(version, std::move(inference), Protocol::kHttp,
                         [stream, ticket = *std::move(ticket)](
                             const Result<InferenceResponse>& result) { stream->Finish(result); });
  }
  service.Infer(version, std::move(inference), Protocol::kHttp,
                [writer = std::move(writer), ticket = *std::move(ticket),
                 respond = std::move(respond)](const Result<InferenceResponse>& result) {
                  if (!result.ok()) return respond(OpenAiRefusal(result.status()));
                  respond(WholeAnswer(writer, *result));
                });
}

}  // namespace onnxd
