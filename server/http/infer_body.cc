#include "server/http/infer_body.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/str_cat.h"
#include "server/http/infer_parameters.h"
#include "server/http/json_tensor.h"
#include "server/inference/binary_tensor.h"
#include "server/inference/data_type_name.h"

namespace onnxd {
namespace {

constexpr size_t kMaxTensors = 128;

Result<std::string_view> TextOf(JsonValue json, std::string_view key) {
  std::string_view text;
  if (json.get_string().get(text) == simdjson::SUCCESS) return text;
  return InvalidArgument(StrCat("\"", key, "\" must be a string"));
}

Result<Shape> ReadShape(JsonValue json, const std::string& input) {
  const auto fail = [&] {
    return InvalidArgument(StrCat("input '", input, "': shape must be an array of numbers >= 0"));
  };
  JsonArray dims;
  if (json.get_array().get(dims) != simdjson::SUCCESS) return fail();
  Shape shape;
  ONNXD_RETURN_IF_ERROR(ForEachElement(dims, [&](JsonValue dim) {
    int64_t value;
    if (dim.get_int64().get(value) != simdjson::SUCCESS || value < 0) return fail();
    if (shape.rank() == kMaxRank) return fail();
    shape.Append(value);
    return Status::Ok();
  }));
  ONNXD_RETURN_IF_ERROR(shape.Validate().WithContext(StrCat("input '", input, "'")));
  return shape;
}

// The binary tensors behind the JSON, taken in order.
class BinarySection {
 public:
  explicit BinarySection(HttpBody part) : rest_(part.bytes), owner_(std::move(part.owner)) {}
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
  std::shared_ptr<void> owner_;
};

Result<ValuePlacement> ReadPlacement(JsonValue json, const std::string& tensor, int64_t max_depth) {
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat("'", tensor.substr(0, 128), "': ", why));
  };
  JsonObject parameters;
  if (json.get_object().get(parameters) != simdjson::SUCCESS) {
    return fail("parameters must be an object");
  }
  ValuePlacement placement;
  SharedMemoryRange range;
  bool sized = false;
  ONNXD_RETURN_IF_ERROR(ForEachField(parameters, [&](std::string_view key, JsonValue value) {
    const auto number = [&](uint64_t& out) {
      return value.get_uint64().get(out) == simdjson::SUCCESS
                 ? Status::Ok()
                 : fail(StrCat(key, " must be a number"));
    };
    if (key == "binary_data_size") return number(placement.binary_data_size.emplace());
    if (key == "binary_data") {
      return value.get_bool().get(placement.binary_data.emplace()) == simdjson::SUCCESS
                 ? Status::Ok()
                 : fail("binary_data must be a boolean");
    }
    if (key == "classification") {
      return value.get_int64().get(placement.classification.emplace()) == simdjson::SUCCESS
                 ? Status::Ok()
                 : fail("classification must be a number");
    }
    if (key == "shared_memory_region") {
      ONNXD_ASSIGN_OR_RETURN(range.region, TextOf(value, key));
      return Status::Ok();
    }
    if (key == "shared_memory_offset") return number(range.offset);
    if (key == "shared_memory_byte_size") {
      sized = true;
      return number(range.bytes);
    }
    return CheckIgnored(value, max_depth);
  }));
  if (!range.region.empty()) {
    if (!sized) return fail("shared_memory_region needs shared_memory_byte_size");
    placement.shared_memory = std::move(range);
  }
  return placement;
}

// What the tensors of a request are read from.
struct Sources {
  BinarySection binary;
  int64_t max_elements;  // of JSON
  const SharedMemory& memory;
  JsonTensorOptions options;
  bool writes_texts;  // the model
};

// An entry of "inputs".
class InputEntry {
 public:
  explicit InputEntry(Sources& sources) : sources_(sources) {}

  Result<NamedValue> Read(JsonObject object) {
    ONNXD_RETURN_IF_ERROR(ForEachField(object, [&](std::string_view key, JsonValue value) {
      ++fields_;
      return ReadField(key, value);
    }));
    if (name_.empty() || !shape_ || !type_) {
      return InvalidArgument("an input needs name, shape and datatype");
    }
    const auto& size = placement_.binary_data_size;
    const auto& shared = placement_.shared_memory;
    if (data_at_.has_value() + size.has_value() + shared.has_value() != 1) {
      return InvalidArgument(StrCat("input '", name_,
                                    "' needs either data, the parameter binary_data_size, or "
                                    "shared_memory_region"));
    }
    if (data_at_ && !tensor_.defined()) {  // it stood before what says what it is
      ONNXD_ASSIGN_OR_RETURN(const JsonValue data, FieldAt(object, *data_at_));
      ONNXD_RETURN_IF_ERROR(ReadData(data));
    } else if (shared) {
      ONNXD_ASSIGN_OR_RETURN(
          tensor_, TensorFromSharedMemory(sources_.memory, *shared, *type_, *shape_, name_));
    } else if (size) {
      ONNXD_ASSIGN_OR_RETURN(const auto bytes, sources_.binary.Take(*size, name_));
      ONNXD_ASSIGN_OR_RETURN(
          tensor_, TensorFromBytes(bytes, sources_.binary.owner(), *type_, *shape_, name_));
    }
    return NamedValue{name_, std::move(tensor_)};
  }

 private:
  Status ReadField(std::string_view key, JsonValue value) {
    if (key == "name") {
      ONNXD_ASSIGN_OR_RETURN(name_, TextOf(value, key));
    } else if (key == "shape") {
      ONNXD_ASSIGN_OR_RETURN(shape_, ReadShape(value, name_));
    } else if (key == "datatype") {
      ONNXD_ASSIGN_OR_RETURN(const auto type_name, TextOf(value, key));
      type_ = DataTypeFromProtocolName(type_name);
      if (!type_) {
        return InvalidArgument(
            StrCat("input '", name_, "': unknown datatype '", type_name.substr(0, 32), "'"));
      }
    } else if (key == "parameters") {
      ONNXD_ASSIGN_OR_RETURN(placement_, ReadPlacement(value, name_, sources_.options.max_depth));
    } else if (key == "data") {
      data_at_ = fields_ - 1;
      if (type_ && shape_) return ReadData(value);
    } else {
      return InvalidArgument(StrCat("an input has the unknown key \"", key.substr(0, 64), "\""));
    }
    return Status::Ok();
  }

  Status ReadData(JsonValue json) {
    ONNXD_ASSIGN_OR_RETURN(tensor_, TensorFromData(json, *type_, *shape_, name_,
                                                   sources_.max_elements, sources_.options));
    return Status::Ok();
  }

  Sources& sources_;
  int64_t fields_ = 0;
  std::string name_;
  std::optional<Shape> shape_;
  std::optional<DataType> type_;
  ValuePlacement placement_;
  std::optional<int64_t> data_at_;  // which field it is
  Tensor tensor_;
};

Result<OutputRequest> ReadOutput(JsonObject object, int64_t max_depth) {
  OutputRequest output;
  ONNXD_RETURN_IF_ERROR(ForEachField(object, [&](std::string_view key, JsonValue value) {
    if (key == "name") {
      ONNXD_ASSIGN_OR_RETURN(output.name, TextOf(value, key));
    } else if (key == "parameters") {
      ONNXD_ASSIGN_OR_RETURN(output.placement, ReadPlacement(value, "an output", max_depth));
    } else {
      return InvalidArgument(StrCat("an output has the unknown key \"", key.substr(0, 64), "\""));
    }
    return Status::Ok();
  }));
  if (output.name.empty()) return InvalidArgument("an output needs a name");
  return output;
}

Status ReadParameter(std::string_view key, JsonValue value, const Sources& sources,
                     InferBody& parsed) {
  if (key == "binary_data_output") {
    if (value.get_bool().get(parsed.binary_default) != simdjson::SUCCESS) {
      return InvalidArgument("binary_data_output must be a boolean");
    }
    return Status::Ok();
  }
  return ReadInferParameter(key, value, sources.options.max_depth, sources.writes_texts,
                            parsed.request);
}

// "inputs" or "outputs": calls visit(JsonObject entry) for each.
template <typename Visit>
Status ForEachEntry(std::string_view key, JsonValue value, Visit visit) {
  JsonArray list;
  if (value.get_array().get(list) != simdjson::SUCCESS) {
    return InvalidArgument(StrCat("\"", key, "\" must be an array"));
  }
  size_t entries = 0;
  return ForEachElement(list, [&](JsonValue element) {
    if (++entries > kMaxTensors) {
      return InvalidArgument(StrCat("\"", key, "\" has more than ", kMaxTensors, " entries"));
    }
    JsonObject entry;
    if (element.get_object().get(entry) == simdjson::SUCCESS) return visit(entry);
    return InvalidArgument(StrCat("an entry of \"", key, "\" must be an object"));
  });
}

Status ReadRequestField(std::string_view key, JsonValue value, Sources& sources,
                        InferBody& parsed) {
  const int64_t max_depth = sources.options.max_depth;
  if (key == "id") {
    ONNXD_ASSIGN_OR_RETURN(parsed.request.id, ReadRequestId(value));
    return Status::Ok();
  }
  if (key == "parameters") {
    JsonObject parameters;
    if (value.get_object().get(parameters) != simdjson::SUCCESS) {
      return InvalidArgument("parameters must be an object");
    }
    return ForEachField(parameters, [&](std::string_view name, JsonValue parameter) {
      return ReadParameter(name, parameter, sources, parsed);
    });
  }
  if (key == "inputs") {
    return ForEachEntry(key, value, [&](JsonObject entry) {
      ONNXD_ASSIGN_OR_RETURN(NamedValue input, InputEntry(sources).Read(entry));
      parsed.request.inputs.push_back(std::move(input));
      return Status::Ok();
    });
  }
  if (key == "outputs") {
    return ForEachEntry(key, value, [&](JsonObject entry) {
      ONNXD_ASSIGN_OR_RETURN(OutputRequest output, ReadOutput(entry, max_depth));
      parsed.request.outputs.push_back(output.name);
      parsed.outputs.push_back(std::move(output));
      return Status::Ok();
    });
  }
  return InvalidArgument(StrCat("unknown key \"", key.substr(0, 64), "\" in the request"));
}

Result<InferBody> ReadRequest(const HttpBody& json, Sources sources) {
  InferBody parsed;
  bool has_inputs = false;
  ONNXD_RETURN_IF_ERROR(ReadJsonObject(json, [&](std::string_view key, JsonValue value) {
    has_inputs = has_inputs || key == "inputs";
    return ReadRequestField(key, value, sources, parsed);
  }));
  if (!has_inputs) return InvalidArgument("the request has no \"inputs\"");
  if (const size_t left = sources.binary.left(); left > 0) {
    return InvalidArgument(StrCat(left, " bytes of binary data belong to no input"));
  }
  return parsed;
}

// The length of the JSON part; the whole body without the header.
Result<size_t> JsonLength(const HttpRequest& request) {
  const std::string* header = request.Header(kHeaderLength);
  if (header == nullptr) return request.body.bytes.size();
  if (request.CountHeaders(kHeaderLength) > 1) {
    return InvalidArgument(StrCat(kHeaderLength, " is given twice"));
  }
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
Result<InferBody> ReadRaw(const ModelVersion& version, const HttpBody& body) {
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
  InferBody parsed;
  ONNXD_ASSIGN_OR_RETURN(
      Tensor tensor,
      TensorFromBytes(body.bytes, body.owner, inputs[0].type.element, shape, inputs[0].name));
  parsed.request.inputs.push_back({inputs[0].name, std::move(tensor)});
  parsed.binary_default = true;
  return parsed;
}

}  // namespace

Result<InferBody> ReadInferBody(const ModelVersion& version, const InferenceService::Json& json,
                                const SharedMemory& memory, const HttpRequest& request) {
  ONNXD_ASSIGN_OR_RETURN(const size_t length, JsonLength(request));
  if (length == 0 && request.Header(kHeaderLength) != nullptr) {
    return ReadRaw(version, request.body);
  }
  const HttpBody& body = request.body;
  const HttpBody text{body.bytes.substr(0, length), body.owner,
                      body.bytes.size() - length + body.readable_after};
  JsonTensorOptions options;
  options.max_depth = json.max_depth;
  options.non_finite_tokens = true;
  return ReadRequest(text, {BinarySection({body.bytes.substr(length), body.owner}),
                            static_cast<int64_t>(length), memory, options, version.writes_texts});
}

}  // namespace onnxd
