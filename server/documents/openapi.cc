#include "server/documents/openapi.h"

#include "runtime/base/str_cat.h"
#include "server/inference/data_type_name.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

constexpr int64_t kMostExample = 1000;

std::string Quoted(std::string_view text) {
  std::string out;
  AppendJsonString(out, text);
  return out;
}

// "string", "boolean", "integer" or "number".
const char* JsonType(DataType type) {
  switch (type) {
    case DataType::kString:
      return "string";
    case DataType::kBool:
      return "boolean";
    case DataType::kFloat:
    case DataType::kDouble:
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return "number";
    default:
      return "integer";
  }
}

const char* ZeroOf(DataType type) {
  return type == DataType::kString ? "\"\"" : type == DataType::kBool ? "false" : "0";
}

size_t RankOf(const ValueType& type) { return type.shape ? type.shape->size() : 0; }

// The shape of an example: what is free is 1.
std::vector<int64_t> ExampleShape(const ValueType& type) {
  std::vector<int64_t> shape;
  for (size_t axis = 0; axis < RankOf(type); ++axis) {
    const Dimension& dimension = (*type.shape)[axis];
    shape.push_back(dimension.known() ? dimension.value : 1);
  }
  return shape;
}

void AppendZeros(std::string& out, const std::vector<int64_t>& shape, size_t axis,
                 const char* zero) {
  if (axis == shape.size()) {
    out += zero;
    return;
  }
  out += '[';
  for (int64_t i = 0; i < shape[axis]; ++i) {
    if (i > 0) out += ',';
    AppendZeros(out, shape, axis + 1, zero);
  }
  out += ']';
}

// Whether each input has an example that is not too long.
bool HasExample(const ModelMetadata& model) {
  int64_t elements = 0;
  for (const TensorMetadata& input : model.inputs) {
    if (!input.type.is_tensor() || !input.type.shape) return false;
    int64_t own = 1;
    for (const int64_t dim : ExampleShape(input.type)) {
      own = dim > kMostExample || own > kMostExample ? kMostExample + 1 : own * dim;
    }
    elements += own;
  }
  return elements <= kMostExample;
}

std::string SchemaOf(const ValueType& type) {
  if (!type.is_tensor()) return "{}";
  std::string schema = StrCat("{\"type\":\"", JsonType(type.element), "\"}");
  for (size_t i = 0; i < RankOf(type); ++i) {
    schema = StrCat("{\"type\":\"array\",\"items\":", schema, "}");
  }
  return schema;
}

std::string BodySchema(const ModelMetadata& model) {
  std::string properties, names;
  for (const TensorMetadata& input : model.inputs) {
    const char* comma = properties.empty() ? "" : ",";
    properties += StrCat(comma, Quoted(input.name), ":", SchemaOf(input.type));
    names += StrCat(comma, Quoted(input.name));
  }
  return StrCat("{\"type\":\"object\",\"required\":[\"inputs\"],\"properties\":{\"inputs\":{",
                "\"type\":\"object\",\"required\":[", names, "],\"properties\":{", properties,
                "}}}}");
}

std::string Example(const ModelMetadata& model) {
  std::string out = "{\"inputs\":{";
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const TensorMetadata& input = model.inputs[i];
    out += StrCat(i > 0 ? "," : "", Quoted(input.name), ":");
    AppendZeros(out, ExampleShape(input.type), 0, ZeroOf(input.type.element));
  }
  return out + "}}";
}

void AppendTensors(std::string& out, const std::vector<TensorMetadata>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ValueType& type = tensors[i].type;
    std::vector<int64_t> shape;
    for (size_t axis = 0; axis < RankOf(type); ++axis) shape.push_back((*type.shape)[axis].value);
    out += StrCat(
        i > 0 ? "," : "", "{\"name\":", Quoted(tensors[i].name), ",\"datatype\":",
        Quoted(type.is_tensor() ? std::string(ProtocolTypeName(type.element)) : ToString(type)),
        ",\"shape\":[", StrJoin(shape, ","), "]}");
  }
}

constexpr const char* kAnswers =
    R"("responses":{"200":{"description":"The answer"},"400":{"description":"What is wrong with the request"},"404":{"description":"There is no such model"},"503":{"description":"Not now; another server may answer"}})";

std::string PathOf(const ModelMetadata& model) {
  std::string out =
      StrCat("{\"post\":{\"summary\":", Quoted(StrCat("A prediction of ", model.name)),
             ",\"requestBody\":{\"required\":true,\"content\":{\"application/json\":{\"schema\":",
             BodySchema(model));
  if (HasExample(model)) out += StrCat(",\"example\":", Example(model));
  return out + StrCat("}}},", kAnswers, "}}");
}

// Of OpenAI's API: what most clients send, to one of these models.
std::string TextPath(std::string_view path, std::string_view summary, std::string_view models,
                     std::string_view field, std::string_view field_schema,
                     std::string_view example) {
  return StrCat(
      "\"", path, "\":{\"post\":{\"summary\":\"", summary,
      R"(","requestBody":{"required":true,"content":{"application/json":{"schema":{"type":"object",)",
      "\"required\":[\"", field, "\"],\"properties\":{\"model\":{\"type\":\"string\",\"enum\":[",
      models, "]},\"", field, "\":", field_schema,
      R"(,"max_tokens":{"type":"integer"},"temperature":{"type":"number"},"stream":{"type":"boolean"}}},)",
      "\"example\":{\"", field, "\":", example, R"(,"max_tokens":16}}}},)", kAnswers, "}},");
}

std::string TextPaths(std::string_view models) {
  if (models.empty()) return {};
  return StrCat(
      TextPath("/v1/completions", "A text behind a prompt, as OpenAI's API has it", models,
               "prompt", R"({"type":"string"})", R"("Once upon a time")"),
      TextPath(
          "/v1/chat/completions", "An answer in a conversation, as OpenAI's API has it", models,
          "messages",
          R"({"type":"array","items":{"type":"object","required":["role"],"properties":{"role":{"type":"string"},"content":{"type":"string"}}}})",
          R"([{"role":"user","content":"Hi"}])"));
}

std::string GetPath(std::string_view path, std::string_view summary) {
  return StrCat("\"", path, "\":{\"get\":{\"summary\":\"", summary, "\",", kAnswers, "}}");
}

}  // namespace

std::string OpenApiJson(const InferenceService& service,
                        const std::function<bool(const std::string&)>& shows) {
  std::string paths, models, writers;
  for (const std::string& name : service.ModelNames()) {
    const auto model = service.Metadata(name, "");
    if (!shows(name) || !model.ok()) continue;
    paths += StrCat(Quoted(StrCat("/predict/", name)), ":", PathOf(*model), ",");
    models += StrCat(models.empty() ? "" : ",", "{\"name\":", Quoted(name), ",\"inputs\":[");
    AppendTensors(models, model->inputs);
    models += "],\"outputs\":[";
    AppendTensors(models, model->outputs);
    models += "]}";
    if (model->writes_texts) writers += StrCat(writers.empty() ? "" : ",", Quoted(name));
  }
  paths += TextPaths(writers);
  return StrCat(R"({"openapi":"3.0.3","info":{"title":"onnxd","version":")", ONNXD_VERSION,
                R"("},"paths":{)", paths, GetPath("/health", "Whether it is well"), ",",
                GetPath("/v2", "The server, in the Open Inference Protocol"), ",",
                GetPath("/metrics", "Prometheus"), R"(},"x-models":[)", models, "]}");
}

}  // namespace onnxd
