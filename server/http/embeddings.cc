#include "server/http/embeddings.h"

#include <algorithm>
#include <optional>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"
#include "server/http/find_model.h"
#include "server/http/json_tensor.h"
#include "server/http/openai_error.h"
#include "server/http/request_timeout.h"
#include "server/http/server_timing.h"
#include "server/inference/base64.h"
#include "server/inference/json_writer.h"
#include "server/inference/route_point.h"

namespace onnxd {
namespace {

struct EmbeddingsBody {
  std::string model;
  Tensor texts;
  bool base64 = false;
  std::optional<int64_t> dimensions;
};

Status ReadTexts(JsonValue value, size_t body_bytes, const JsonTensorOptions& options,
                 Tensor& texts) {
  ValueType type;
  type.kind = ValueType::Kind::kTensor;
  type.element = DataType::kString;
  type.shape = SymbolicShape(1);
  ONNXD_ASSIGN_OR_RETURN(
      texts, TensorFromNested(value, type, "input", ExpectedElements(body_bytes), options));
  return texts.ElementCount() > 0 ? Status::Ok() : InvalidArgument("\"input\" is empty");
}

Status ReadFormat(JsonValue value, bool& base64) {
  std::string_view text;
  const bool known =
      value.get_string().get(text) == simdjson::SUCCESS && (text == "float" || text == "base64");
  base64 = known && text == "base64";
  return known ? Status::Ok()
               : InvalidArgument("\"encoding_format\" must be \"float\" or \"base64\"");
}

Status ReadDimensions(JsonValue value, std::optional<int64_t>& dimensions) {
  if (IsNull(value)) return Status::Ok();
  if (value.get_int64().get(dimensions.emplace()) == simdjson::SUCCESS) return Status::Ok();
  return InvalidArgument("\"dimensions\" must be a whole number");
}

Result<EmbeddingsBody> ReadBody(const HttpBody& body, int64_t max_depth) {
  EmbeddingsBody parsed;
  JsonTensorOptions options;
  options.max_depth = max_depth;
  ONNXD_RETURN_IF_ERROR(ReadJsonObject(body, [&](std::string_view key, JsonValue value) {
    if (key == "input") return ReadTexts(value, body.bytes.size(), options, parsed.texts);
    if (key == "encoding_format") return ReadFormat(value, parsed.base64);
    if (key == "model") {
      std::string_view text;
      if (value.get_string().get(text) != simdjson::SUCCESS) {
        return InvalidArgument("\"model\" must be a string");
      }
      parsed.model = text;
      return Status::Ok();
    }
    if (key == "dimensions") return ReadDimensions(value, parsed.dimensions);
    return CheckIgnored(value, max_depth);
  }));
  if (!parsed.texts.defined()) return InvalidArgument("the body needs \"input\": texts");
  return parsed;
}

bool IsVectors(const TensorSignature& output) {
  return output.type.is_tensor() && IsFloatingPoint(output.type.element) && output.type.shape &&
         output.type.shape->size() == 2;
}

// The name of the output.
Result<std::string> EmbeddingOf(const ModelVersion& version) {
  const auto& inputs = version.inputs;
  const bool takes_texts = inputs.size() == 1 && inputs[0].type.is_tensor() &&
                           inputs[0].type.element == DataType::kString && inputs[0].type.shape &&
                           inputs[0].type.shape->size() == 1;
  std::vector<std::string> candidates;
  for (const TensorSignature& output : version.outputs) {
    if (!takes_texts || !IsVectors(output)) continue;
    if (output.name == "embedding" || output.name == "sentence_embedding") return output.name;
    candidates.push_back(output.name);
  }
  if (candidates.size() == 1) return candidates[0];
  return InvalidArgument(StrCat("model '", version.model,
                                "' makes no embeddings: it needs one input of texts ",
                                "[batch] and an output 'embedding' [batch, size]"));
}

// Of [rows, size].
Tensor RowOf(const Tensor& vectors, int64_t row) {
  const int64_t size = vectors.shape()[1];
  auto* const data = const_cast<float*>(vectors.data<float>()) + row * size;
  return Tensor::Wrap(DataType::kFloat, Shape{size}, data, vectors.owner());
}

Status AppendVector(std::string& out, const Tensor& row, bool base64,
                    NonFiniteNumbers& non_finite) {
  if (!base64) return AppendFlat(out, row, non_finite);
  out += '"';
  out += EncodeBase64({reinterpret_cast<const char*>(row.raw()), row.bytes()});
  out += '"';
  return Status::Ok();
}

Result<std::string> WriteAnswer(const InferenceResponse& response, const EmbeddingsBody& asked,
                                NonFiniteNumbers& non_finite) {
  ONNXD_ASSIGN_OR_RETURN(const Tensor vectors,
                         Converted(response.outputs[0].value.tensor(), DataType::kFloat));
  const Shape& shape = vectors.shape();
  if (shape.rank() != 2 || shape[0] != asked.texts.ElementCount()) {
    return InvalidArgument(StrCat("output '", response.outputs[0].name, "' has shape ",
                                  shape.ToString(), ", no row for each text"));
  }
  if (asked.dimensions && *asked.dimensions != shape[1]) {
    return InvalidArgument(
        StrCat("\"dimensions\" is ", *asked.dimensions, ", the model's vectors have ", shape[1]));
  }
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (int64_t row = 0; row < shape[0]; ++row) {
    out +=
        StrCat(row == 0 ? "" : ",", "{\"object\":\"embedding\",\"index\":", row, ",\"embedding\":");
    ONNXD_RETURN_IF_ERROR(AppendVector(out, RowOf(vectors, row), asked.base64, non_finite));
    out += '}';
  }
  out += "],\"model\":";
  AppendJsonString(out, response.model);
  if (const auto tokens = response.input_tokens) {
    out += StrCat(",\"usage\":{\"prompt_tokens\":", *tokens, ",\"total_tokens\":", *tokens, "}");
  }
  return out + "}";
}

}  // namespace

void HandleEmbeddings(InferenceService& service, HttpRequest request, HttpRespond respond) {
  const auto fail = [&](const Status& status) {
    service.NoteUnrouted(Protocol::kHttp, status, request.origin);
    respond(OpenAiRefusal(status));
  };
  auto body = ReadBody(request.body, service.json().max_depth);
  if (!body.ok()) return fail(body.status());
  const auto version = FindGrantedModel(service, *request.grant, body->model, "",
                                        RoutePoint(request.origin.route_key));
  if (!version.ok()) return fail(version.status());
  InferenceRequest inference;
  auto output = EmbeddingOf(**version);
  const Status status = output.ok() ? ApplyTimeout(request, inference) : output.status();
  if (!status.ok()) {
    InferenceService::NoteRefusal(**version);
    return fail(status);
  }
  auto ticket = service.EnterClient(**version, request.origin);
  if (!ticket.ok()) return respond(OpenAiOverQuota(ticket.status()));
  inference.origin = std::move(request.origin);
  inference.inputs.push_back({(*version)->inputs[0].name, body->texts});
  inference.outputs.push_back(*std::move(output));
  service.Infer(
      *version, std::move(inference), Protocol::kHttp,
      [&service, metrics = (*version)->metrics, ticket = *std::move(ticket),
       asked = *std::move(body), respond = std::move(respond)](Result<InferenceResponse> result) {
        if (!result.ok()) return respond(OpenAiRefusal(result.status()));
        NonFiniteNumbers non_finite{service.json().non_finite};
        auto text = WriteAnswer(*result, asked, non_finite);
        metrics->CountNonFinite(non_finite.count);
        if (!text.ok()) return respond(OpenAiRefusal(text.status()));
        HttpResponse response;
        response.body = *std::move(text);
        response.may_compress = true;
        AddServerTiming(*result, response);
        respond(std::move(response));
      });
}

}  // namespace onnxd
