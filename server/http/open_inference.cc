#include "server/http/open_inference.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "runtime/base/str_cat.h"
#include "server/documents/model_config.h"
#include "server/documents/model_statistics_json.h"
#include "server/documents/server_extensions.h"
#include "server/http/json_tensor.h"
#include "server/http/request_timeout.h"
#include "server/http/rest_api.h"
#include "server/http/server_timing.h"
#include "server/inference/binary_tensor.h"
#include "server/inference/data_type_name.h"
#include "server/inference/json_writer.h"
#include "server/inference/output_tensor.h"
#include "server/inference/shared_memory_tensor.h"

namespace onnxd {
namespace {

using simdjson::dom::element;
using Verb = OpenInferenceRoute::Verb;

constexpr size_t kMaxTensors = 128;
constexpr size_t kMaxIdBytes = 256;
constexpr const char* kHeaderLength = "Inference-Header-Content-Length";

// --- metadata ---

HttpResponse ServerMetadata() {
  HttpResponse response;
  response.body = R"({"name":"onnxd","version":")" ONNXD_VERSION R"(","extensions":[)";
  for (const std::string_view extension : kServerExtensions) {
    response.body += StrCat(extension == kServerExtensions[0] ? "" : ",", "\"", extension, "\"");
  }
  response.body += "]}";
  return response;
}

void AppendTensorMetadata(std::string& out, const std::vector<TensorMetadata>& tensors) {
  out += '[';
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i > 0) out += ',';
    out += "{\"name\":";
    AppendJsonString(out, tensors[i].name);
    out += ",\"datatype\":";
    const ValueType& type = tensors[i].type;
    // Values that are no tensors have no datatype in the protocol; their ONNX type is shown.
    AppendJsonString(
        out, type.is_tensor() ? std::string(ProtocolTypeName(type.element)) : ToString(type));
    out += ",\"shape\":[";
    if (type.shape) {
      for (size_t axis = 0; axis < type.shape->size(); ++axis) {
        if (axis > 0) out += ',';
        out += StrCat((*type.shape)[axis].value);  // -1 when free
      }
    }
    out += "]}";
  }
  out += ']';
}

HttpResponse ModelMetadataResponse(const ModelMetadata& metadata) {
  HttpResponse response;
  std::string& out = response.body;
  out = "{\"name\":";
  AppendJsonString(out, metadata.name);
  out += ",\"versions\":[";
  for (size_t i = 0; i < metadata.versions.size(); ++i) {
    if (i > 0) out += ',';
    AppendJsonString(out, metadata.versions[i]);
  }
  out += "],\"platform\":\"onnx_onnxv1\",\"inputs\":";
  AppendTensorMetadata(out, metadata.inputs);
  out += ",\"outputs\":";
  AppendTensorMetadata(out, metadata.outputs);
  out += '}';
  return response;
}

// --- request ---

Result<std::string_view> TextOf(const element& json, std::string_view key) {
  if (json.is_string()) return std::string_view(json);
  return InvalidArgument(StrCat("\"", key, "\" must be a string"));
}

Result<Shape> ReadShape(const element& json, const std::string& input) {
  const auto fail = [&] {
    return InvalidArgument(StrCat("input '", input, "': shape must be an array of numbers >= 0"));
  };
  if (!json.is_array()) return fail();
  Shape shape;
  for (const element dim : simdjson::dom::array(json)) {
    int64_t value;
    if (dim.get(value) != simdjson::SUCCESS || value < 0) return fail();
    if (shape.rank() == kMaxRank) return fail();
    shape.Append(value);
  }
  ONNXD_RETURN_IF_ERROR(shape.Validate().WithContext(StrCat("input '", input, "'")));
  return shape;
}

// The binary tensors behind the JSON, taken in order.
class BinarySection {
 public:
  explicit BinarySection(const HttpBody& part) : rest_(part.bytes), owner_(part.owner) {}
  Result<std::string_view> Take(uint64_t size, const std::string& input) {
    if (size > rest_.size()) {
      return InvalidArgument(StrCat("input '", input, "': binary_data_size is ", size, ", ",
                                    rest_.size(), " bytes are left"));
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  size_t left() const { return rest_.size(); }
  const std::shared_ptr<void>& owner() const { return owner_; }

 private:
  std::string_view rest_;
  const std::shared_ptr<void>& owner_;
};

// What the parameters of an input or output say of where it is.
struct Placement {
  std::optional<uint64_t> binary_data_size;
  std::optional<bool> binary_data;
  std::optional<SharedMemoryRange> shared_memory;
  std::optional<int64_t> classification;
};

Result<Placement> ReadPlacement(const element& parameters, const std::string& tensor) {
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat("'", tensor.substr(0, 128), "': ", why));
  };
  if (!parameters.is_object()) return fail("parameters must be an object");
  Placement placement;
  SharedMemoryRange range;
  bool sized = false;
  for (const auto& [key, value] : simdjson::dom::object(parameters)) {
    const auto number = [&](uint64_t& out) {
      return value.get(out) == simdjson::SUCCESS
                 ? Status::Ok()
                 : fail(StrCat(std::string_view(key), " must be a number"));
    };
    if (key == "binary_data_size") {
      ONNXD_RETURN_IF_ERROR(number(placement.binary_data_size.emplace()));
    } else if (key == "binary_data") {
      if (value.get(placement.binary_data.emplace()) != simdjson::SUCCESS) {
        return fail("binary_data must be a boolean");
      }
    } else if (key == "classification") {
      if (value.get(placement.classification.emplace()) != simdjson::SUCCESS) {
        return fail("classification must be a number");
      }
    } else if (key == "shared_memory_region") {
      ONNXD_ASSIGN_OR_RETURN(range.region, TextOf(value, key));
    } else if (key == "shared_memory_offset") {
      ONNXD_RETURN_IF_ERROR(number(range.offset));
    } else if (key == "shared_memory_byte_size") {
      ONNXD_RETURN_IF_ERROR(number(range.bytes));
      sized = true;
    }
  }
  if (!range.region.empty()) {
    if (!sized) return fail("shared_memory_region needs shared_memory_byte_size");
    placement.shared_memory = std::move(range);
  }
  return placement;
}

struct OutputRequest {
  std::string name;
  Placement placement;
};

struct ParsedRequest {
  InferenceRequest request;
  std::vector<OutputRequest> outputs;
  bool binary_default = false;
};

Result<NamedValue> ReadInput(const element& json, BinarySection& binary, int64_t max_elements,
                             const SharedMemory& memory) {
  if (!json.is_object()) return InvalidArgument("an entry of \"inputs\" must be an object");
  std::string name;
  std::optional<element> shape_json, type_json, data, parameters;
  for (const auto& [key, value] : simdjson::dom::object(json)) {
    if (key == "name") {
      ONNXD_ASSIGN_OR_RETURN(name, TextOf(value, key));
    } else if (key == "shape") {
      shape_json = value;
    } else if (key == "datatype") {
      type_json = value;
    } else if (key == "data") {
      data = value;
    } else if (key == "parameters") {
      parameters = value;
    } else {
      return InvalidArgument(StrCat("an input has the unknown key \"", key.substr(0, 64), "\""));
    }
  }
  if (name.empty() || !shape_json || !type_json) {
    return InvalidArgument("an input needs name, shape and datatype");
  }
  ONNXD_ASSIGN_OR_RETURN(const auto type_name, TextOf(*type_json, "datatype"));
  const auto type = DataTypeFromProtocolName(type_name);
  if (!type) {
    return InvalidArgument(
        StrCat("input '", name, "': unknown datatype '", type_name.substr(0, 32), "'"));
  }
  ONNXD_ASSIGN_OR_RETURN(const Shape shape, ReadShape(*shape_json, name));
  Placement placement;
  if (parameters) {
    ONNXD_ASSIGN_OR_RETURN(placement, ReadPlacement(*parameters, name));
  }
  const auto& size = placement.binary_data_size;
  const auto& shared = placement.shared_memory;
  if (data.has_value() + size.has_value() + shared.has_value() != 1) {
    return InvalidArgument(StrCat("input '", name,
                                  "' needs either data, the parameter binary_data_size, or "
                                  "shared_memory_region"));
  }
  Result<Tensor> tensor = Tensor();
  if (data) {
    tensor = TensorFromData(*data, *type, shape, name, max_elements);
  } else if (shared) {
    tensor = TensorFromSharedMemory(memory, *shared, *type, shape, name);
  } else {
    ONNXD_ASSIGN_OR_RETURN(const auto bytes, binary.Take(*size, name));
    tensor = TensorFromBytes(bytes, binary.owner(), *type, shape, name);
  }
  if (!tensor.ok()) return tensor.status();
  return NamedValue{name, *std::move(tensor)};
}

Result<OutputRequest> ReadOutput(const element& json) {
  OutputRequest output;
  if (!json.is_object()) return InvalidArgument("an entry of \"outputs\" must be an object");
  for (const auto& [key, value] : simdjson::dom::object(json)) {
    if (key == "name") {
      ONNXD_ASSIGN_OR_RETURN(output.name, TextOf(value, key));
    } else if (key == "parameters") {
      ONNXD_ASSIGN_OR_RETURN(output.placement, ReadPlacement(value, "an output"));
    } else {
      return InvalidArgument(StrCat("an output has the unknown key \"", key.substr(0, 64), "\""));
    }
  }
  if (output.name.empty()) return InvalidArgument("an output needs a name");
  return output;
}

Status ReadParameters(const element& json, ParsedRequest& parsed) {
  if (!json.is_object()) return InvalidArgument("parameters must be an object");
  for (const auto& [key, value] : simdjson::dom::object(json)) {
    if (key == "binary_data_output") {
      if (value.get(parsed.binary_default) != simdjson::SUCCESS) {
        return InvalidArgument("binary_data_output must be a boolean");
      }
    } else if (key == "timeout") {
      int64_t microseconds;
      if (value.get(microseconds) != simdjson::SUCCESS || microseconds < 0) {
        return InvalidArgument("timeout must be a number of microseconds");
      }
      if (microseconds > 0) {
        parsed.request.timeout =
            std::min(std::chrono::microseconds(microseconds),
                     std::chrono::microseconds(InferenceRequest::kMostTimeout));
      }
    } else if (key == "priority") {
      if (value.get(parsed.request.priority) != simdjson::SUCCESS || parsed.request.priority < 0) {
        return InvalidArgument("priority must be a whole number, 1 the most urgent");
      }
    } else if (key == "sequence_id") {
      return Unimplemented("sequence requests are not supported");
    }
  }
  return Status::Ok();
}

Result<ParsedRequest> ReadRequest(const element& root, const HttpBody& binary_part,
                                  int64_t max_elements, const SharedMemory& memory) {
  if (!root.is_object()) return InvalidArgument("the body must be a JSON object");
  ParsedRequest parsed;
  BinarySection binary(binary_part);
  bool has_inputs = false;
  for (const auto& [key, value] : simdjson::dom::object(root)) {
    if (key == "id") {
      ONNXD_ASSIGN_OR_RETURN(parsed.request.id, TextOf(value, key));
      if (parsed.request.id.size() > kMaxIdBytes) return InvalidArgument("the id is too long");
    } else if (key == "parameters") {
      ONNXD_RETURN_IF_ERROR(ReadParameters(value, parsed));
    } else if (key == "inputs" || key == "outputs") {
      if (!value.is_array()) return InvalidArgument(StrCat("\"", key, "\" must be an array"));
      const simdjson::dom::array list(value);
      if (list.size() > kMaxTensors) {
        return InvalidArgument(StrCat("\"", key, "\" has more than ", kMaxTensors, " entries"));
      }
      for (const element entry : list) {
        if (key == "inputs") {
          ONNXD_ASSIGN_OR_RETURN(NamedValue input, ReadInput(entry, binary, max_elements, memory));
          parsed.request.inputs.push_back(std::move(input));
        } else {
          ONNXD_ASSIGN_OR_RETURN(OutputRequest output, ReadOutput(entry));
          parsed.request.outputs.push_back(output.name);
          parsed.outputs.push_back(std::move(output));
        }
      }
      has_inputs = has_inputs || key == "inputs";
    } else {
      return InvalidArgument(StrCat("unknown key \"", key.substr(0, 64), "\" in the request"));
    }
  }
  if (!has_inputs) return InvalidArgument("the request has no \"inputs\"");
  if (binary.left() > 0) {
    return InvalidArgument(StrCat(binary.left(), " bytes of binary data belong to no input"));
  }
  return parsed;
}

// The length of the JSON part; the whole body without the header.
Result<size_t> JsonLength(const HttpRequest& request) {
  const std::string* header = request.Header(kHeaderLength);
  if (header == nullptr) return request.body.bytes.size();
  uint64_t length = 0;
  const auto [stop, error] =
      std::from_chars(header->data(), header->data() + header->size(), length);
  if (error != std::errc() || stop != header->data() + header->size() ||
      length > request.body.bytes.size()) {
    return InvalidArgument(StrCat(kHeaderLength, " must be a number up to the body's size"));
  }
  return length;
}

// A raw binary request: the whole body is the only input, all outputs come back binary.
Result<ParsedRequest> ReadRaw(const ModelVersion& version, const HttpBody& body) {
  const auto& inputs = version.inputs;
  if (inputs.size() != 1 || !inputs[0].type.is_tensor() ||
      inputs[0].type.element == DataType::kString || !inputs[0].type.shape) {
    return InvalidArgument(StrCat("a raw binary request needs a model with one numeric input; '",
                                  version.model, "' has another signature"));
  }
  const SymbolicShape& declared = *inputs[0].type.shape;
  const int64_t width = DataTypeBits(inputs[0].type.element) / 8;
  Shape shape;
  int free_axis = -1;
  int64_t known = 1;
  for (size_t axis = 0; axis < declared.size(); ++axis) {
    const bool batch = axis == 0 && !declared[axis].known();
    const int64_t dim = batch ? 1 : declared[axis].value;
    if (dim < 0) {
      if (free_axis >= 0) return InvalidArgument("the input has several free dimensions");
      free_axis = static_cast<int>(axis);
    }
    shape.Append(std::max<int64_t>(dim, 0));
    if (dim >= 0) known *= dim;
  }
  const auto size = static_cast<int64_t>(body.bytes.size());
  if (free_axis >= 0 && known > 0) shape[free_axis] = size / width / known;
  ParsedRequest parsed;
  ONNXD_ASSIGN_OR_RETURN(
      Tensor tensor,
      TensorFromBytes(body.bytes, body.owner, inputs[0].type.element, shape, inputs[0].name));
  parsed.request.inputs.push_back({inputs[0].name, std::move(tensor)});
  parsed.binary_default = true;
  return parsed;
}

// --- response ---

// What an answer is written to.
struct AnswerParts {
  std::string json, binary;
  bool any_binary = false;
};

Status AppendOutput(AnswerParts& parts, const NamedValue& output, const Placement& placement,
                    bool binary_default, const SharedMemory& memory) {
  ONNXD_ASSIGN_OR_RETURN(const Tensor tensor, OutputTensor(output, placement.classification));
  const std::string_view type = ProtocolTypeName(tensor.type());
  if (type.empty()) {
    return Unimplemented(StrCat("output '", output.name, "' of type ", DataTypeName(tensor.type()),
                                " has no protocol datatype"));
  }
  std::string& json = parts.json;
  json += "{\"name\":";
  AppendJsonString(json, output.name);
  json += StrCat(",\"datatype\":\"", type, "\",\"shape\":[", StrJoin(tensor.shape(), ","), "]");
  if (const auto& range = placement.shared_memory) {
    ONNXD_ASSIGN_OR_RETURN(const uint64_t bytes,
                           WriteToSharedMemory(memory, *range, tensor, output.name));
    json += ",\"parameters\":{\"shared_memory_region\":";
    AppendJsonString(json, range->region);
    if (range->offset > 0) json += StrCat(",\"shared_memory_offset\":", range->offset);
    json += StrCat(",\"shared_memory_byte_size\":", bytes, "}");
  } else if (placement.binary_data.value_or(binary_default)) {
    const size_t before = parts.binary.size();
    AppendTensorBytes(parts.binary, tensor);
    parts.any_binary = true;
    json += StrCat(",\"parameters\":{\"binary_data_size\":", parts.binary.size() - before, "}");
  } else {
    json += ",\"data\":";
    ONNXD_RETURN_IF_ERROR(
        AppendFlat(json, tensor).WithContext(StrCat("output '", output.name, "'")));
  }
  json += '}';
  return Status::Ok();
}

Result<HttpResponse> WriteAnswer(const InferenceResponse& answer,
                                 const std::vector<OutputRequest>& outputs, bool binary_default,
                                 const SharedMemory& memory) {
  AnswerParts parts;
  std::string& json = parts.json;
  json = "{\"model_name\":";
  AppendJsonString(json, answer.model);
  json += ",\"model_version\":";
  AppendJsonString(json, answer.version);
  if (!answer.id.empty()) {
    json += ",\"id\":";
    AppendJsonString(json, answer.id);
  }
  json += ",\"outputs\":[";
  const Placement anywhere;
  for (size_t i = 0; i < answer.outputs.size(); ++i) {
    if (i > 0) json += ',';
    const Placement& placement = i < outputs.size() ? outputs[i].placement : anywhere;
    ONNXD_RETURN_IF_ERROR(
        AppendOutput(parts, answer.outputs[i], placement, binary_default, memory));
  }
  json += "]}";
  HttpResponse response;
  response.may_compress = true;
  if (parts.any_binary) {
    response.content_type = "application/octet-stream";
    response.headers.emplace_back(kHeaderLength, StrCat(json.size()));
    json += parts.binary;
  }
  response.body = std::move(json);
  return response;
}

Result<ParsedRequest> ReadInfer(const ModelVersion& version, const ServerOptions::Limits& limits,
                                const SharedMemory& memory, const HttpRequest& request) {
  ONNXD_ASSIGN_OR_RETURN(const size_t length, JsonLength(request));
  if (length == 0 && request.Header(kHeaderLength) != nullptr) {
    return ReadRaw(version, request.body);
  }
  const std::string_view body(request.body.bytes);
  ONNXD_ASSIGN_OR_RETURN(const auto document,
                         JsonDocument::Parse(body.substr(0, length), limits.json_depth));
  return ReadRequest(document->root(), {body.substr(length), request.body.owner},
                     static_cast<int64_t>(length), memory);
}

void Infer(InferenceService& service, const ServerOptions::Limits& limits,
           const OpenInferenceRoute& route, const HttpRequest& request, HttpRespond respond) {
  const auto fail = [&](const Status& status) {
    service.NoteUnrouted(Protocol::kHttp, status, request.id, request.client);
    respond(ErrorResponse(status));
  };
  auto version = service.FindModel(route.model, route.version);
  if (!version.ok()) return fail(version.status());
  auto parsed = ReadInfer(**version, limits, service.shared_memory(), request);
  if (!parsed.ok()) return fail(parsed.status());
  const Status timeout = ApplyTimeout(request, parsed->request);
  if (!timeout.ok()) return fail(timeout);
  auto ticket = service.EnterClient(request.client);
  if (!ticket.ok()) return respond(OverQuotaResponse(ticket.status()));
  parsed->request.arrived = request.arrived;
  parsed->request.request_id = request.id;
  parsed->request.client = request.client;
  parsed->request.cancelled = request.cancelled;
  service.Infer(*version, std::move(parsed->request), Protocol::kHttp,
                [&service, ticket = *std::move(ticket), respond = std::move(respond),
                 outputs = std::move(parsed->outputs),
                 binary = parsed->binary_default](Result<InferenceResponse> result) {
                  if (!result.ok()) return respond(ErrorResponse(result.status()));
                  auto response = WriteAnswer(*result, outputs, binary, service.shared_memory());
                  if (!response.ok()) return respond(ErrorResponse(response.status()));
                  AddServerTiming(*result, *response);
                  respond(std::move(*response));
                });
}

}  // namespace

std::optional<OpenInferenceRoute> OpenInferenceRouteOf(const std::vector<std::string>& path) {
  if (path.size() == 1) return OpenInferenceRoute{Verb::kServerMetadata, "", ""};
  if (path.size() < 3 || path[1] != "models") return std::nullopt;
  if (path.size() == 3 && path[2] == "stats") return OpenInferenceRoute{Verb::kStatistics, "", ""};
  OpenInferenceRoute route{Verb::kModelMetadata, path[2], ""};
  size_t next = 3;
  if (path.size() >= 5 && path[3] == "versions") {
    route.version = path[4];
    next = 5;
  }
  if (path.size() == next) return route;
  if (path.size() != next + 1) return std::nullopt;
  if (path[next] == "ready") {
    route.verb = Verb::kModelReady;
  } else if (path[next] == "config") {
    route.verb = Verb::kModelConfig;
  } else if (path[next] == "stats") {
    route.verb = Verb::kStatistics;
  } else if (path[next] == "infer") {
    route.verb = Verb::kInfer;
  } else {
    return std::nullopt;
  }
  return route;
}

void HandleOpenInference(InferenceService& service, const ServerOptions::Limits& limits,
                         const OpenInferenceRoute& route, HttpRequest request,
                         HttpRespond respond) {
  switch (route.verb) {
    case Verb::kServerMetadata:
      return respond(ServerMetadata());
    case Verb::kModelMetadata: {
      const auto metadata = service.Metadata(route.model, route.version);
      return respond(metadata.ok() ? ModelMetadataResponse(*metadata)
                                   : ErrorResponse(metadata.status()));
    }
    case Verb::kModelConfig: {
      const auto config = service.Config(route.model, route.version);
      if (!config.ok()) return respond(ErrorResponse(config.status()));
      HttpResponse response;
      response.body = ModelConfigJson(*config->version, config->batching);
      return respond(std::move(response));
    }
    case Verb::kStatistics: {
      const auto versions = service.Versions(route.model, route.version);
      if (!versions.ok()) return respond(ErrorResponse(versions.status()));
      HttpResponse response;
      response.body = ModelStatisticsJson(*versions);
      return respond(std::move(response));
    }
    case Verb::kModelReady: {
      const bool ready = service.ModelReady(route.model, route.version);
      HttpResponse response;
      response.status = ready ? 200 : 404;
      response.body = "{\"name\":";
      AppendJsonString(response.body, route.model);
      response.body += StrCat(",\"ready\":", ready, "}");
      return respond(std::move(response));
    }
    case Verb::kInfer:
      return Infer(service, limits, route, request, std::move(respond));
  }
}

}  // namespace onnxd
