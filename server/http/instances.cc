#include "server/http/instances.h"

#include <algorithm>
#include <map>
#include <memory>

#include "runtime/base/str_cat.h"
#include "server/http/json_document.h"
#include "server/http/json_tensor.h"
#include "server/inference/base64.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

constexpr std::string_view kBase64Key = "b64";

// The first character of an array's or an object's first element, or what ends it.
char FirstInside(JsonValue json) {
  const std::string_view bracket = json.raw_json_token();  // up to the next token
  return bracket.data()[bracket.size()];
}

bool IsOf(JsonValue json, simdjson::ondemand::json_type wanted) {
  simdjson::ondemand::json_type type;
  return json.type().get(type) == simdjson::SUCCESS && type == wanted;
}

class InstancesReader {
 public:
  InstancesReader(const ModelVersion& version, int64_t max_depth) : version_(version) {
    options_.max_depth = max_depth;
    options_.non_finite_tokens = options_.base64 = true;
  }

  Result<Instances> Read(const HttpBody& body) {
    size_ = body.bytes.size();
    ONNXD_RETURN_IF_ERROR(ReadJsonObject(
        body, [this](std::string_view key, JsonValue value) { return ReadField(key, value); }));
    if (!found_) return InvalidArgument("the body needs \"instances\" or \"inputs\"");
    return std::move(form_);
  }

 private:
  Status ReadField(std::string_view key, JsonValue value) {
    if (key == "instances" || key == "inputs") {
      if (found_) return InvalidArgument("\"instances\" and \"inputs\" exclude each other");
      found_ = true;
      form_.by_row = options_.by_row = key == "instances";
      return form_.by_row ? ReadRows(value) : ReadColumns(value);
    }
    if (key != "signature_name") return CheckIgnored(value, options_.max_depth);
    std::string_view name;
    if (value.get_string().get(name) == simdjson::SUCCESS &&
        (name.empty() || name == "serving_default")) {
      return Status::Ok();
    }
    return InvalidArgument("\"signature_name\" may be \"serving_default\"");
  }

  Result<const TensorSignature*> InputNamed(std::string_view name) const {
    for (const auto& signature : version_.inputs) {
      if (signature.name != name) continue;
      if (signature.type.is_tensor()) return &signature;
      return Unimplemented(
          StrCat("input '", name, "' of type ", ToString(signature.type), " has no JSON form"));
    }
    return InvalidArgument(
        StrCat("model '", version_.model, "' has no input '", name.substr(0, 128), "'"));
  }

  Result<const TensorSignature*> OnlyInput() const {
    if (version_.inputs.size() == 1) return InputNamed(version_.inputs[0].name);
    return InvalidArgument(
        StrCat("model '", version_.model, "' has ", version_.inputs.size(), " inputs: name them"));
  }

  // Whether an object's field of that name makes it a text of the only input.
  bool IsText(std::string_view key) const {
    return key == kBase64Key && version_.inputs.size() == 1 &&
           version_.inputs[0].name != kBase64Key &&
           version_.inputs[0].type.element == DataType::kString;
  }

  Status Add(const TensorSignature& signature, JsonValue value) {
    const int64_t expected = ExpectedElements(form_.inputs.empty() ? size_ : 0);
    ONNXD_ASSIGN_OR_RETURN(
        Tensor tensor, TensorFromNested(value, signature.type, signature.name, expected, options_));
    if (form_.by_row) form_.rows = tensor.shape()[0];
    form_.inputs.push_back({signature.name, std::move(tensor)});
    return Status::Ok();
  }

  Status ReadColumns(JsonValue json) {
    if (!IsOf(json, simdjson::ondemand::json_type::object)) {
      ONNXD_ASSIGN_OR_RETURN(const TensorSignature* input, OnlyInput());
      return Add(*input, json);
    }
    JsonObject by_name;
    ONNXD_RETURN_IF_ERROR(JsonStatus(json.get_object().get(by_name)));
    return ForEachField(by_name, [this](std::string_view name, JsonValue value) {
      ONNXD_ASSIGN_OR_RETURN(const TensorSignature* input, InputNamed(name));
      return Add(*input, value);
    });
  }

  Status ReadRows(JsonValue json) {
    if (!IsOf(json, simdjson::ondemand::json_type::array)) {
      return InvalidArgument("\"instances\" must be an array");
    }
    if (FirstInside(json) == ']') return InvalidArgument("\"instances\" is empty");
    if (FirstInside(json) != '{') {
      ONNXD_ASSIGN_OR_RETURN(const TensorSignature* input, OnlyInput());
      return Add(*input, json);
    }
    JsonArray rows;
    ONNXD_RETURN_IF_ERROR(JsonStatus(json.get_array().get(rows)));
    int64_t number = 0;
    ONNXD_RETURN_IF_ERROR(ForEachElement(rows, [&](JsonValue row) {
      const int64_t at = number++;
      return ReadNamedRow(row, at).WithContext(StrCat("instance ", at));
    }));
    for (const auto& [name, column] : columns_) ONNXD_RETURN_IF_ERROR(ReadColumn(name, column));
    return Status::Ok();
  }

  // An instance is an object of rows by input; all of them name the same inputs.
  Status ReadNamedRow(JsonValue json, int64_t number) {
    JsonObject row;
    if (json.get_object().get(row) != simdjson::SUCCESS) {
      return InvalidArgument("it must be an object as the first is");
    }
    size_t fields = 0;
    ONNXD_RETURN_IF_ERROR(ForEachField(row, [&](std::string_view key, JsonValue value) {
      const bool is_text = IsText(key);
      std::string_view raw;
      Column& column = columns_[is_text ? version_.inputs[0].name : std::string(key)];
      if (column.rows++ != number) return OtherInputs();
      ONNXD_RETURN_IF_ERROR(JsonStatus(simdjson::to_json_string(value).get(raw)));
      column.text += number == 0 ? "[" : ",";
      column.text += is_text ? StrCat("{\"", kBase64Key, "\":", raw, "}") : std::string(raw);
      ++fields;
      return Status::Ok();
    }));
    return fields == columns_.size() ? Status::Ok() : OtherInputs();
  }

  static Status OtherInputs() { return InvalidArgument("all instances must name the same inputs"); }

  struct Column {
    std::string text;  // an array, but for its end
    int64_t rows = 0;
  };

  Status ReadColumn(const std::string& name, const Column& column) {
    ONNXD_ASSIGN_OR_RETURN(const TensorSignature* input, InputNamed(name));
    const auto text = std::make_shared<std::string>(StrCat("{\"rows\":", column.text, "]}"));
    return ReadJsonObject({*text, text},
                          [&](std::string_view, JsonValue value) { return Add(*input, value); });
  }

  const ModelVersion& version_;
  JsonTensorOptions options_;
  size_t size_ = 0;
  bool found_ = false;
  Instances form_;
  std::map<std::string, Column> columns_;
};

// Texts as {"b64": ..}, nested by shape.
void AppendBase64(std::string& out, const Tensor& tensor, int axis, size_t& next) {
  if (axis == tensor.shape().rank()) {
    out += StrCat("{\"b64\":\"", EncodeBase64(tensor.elements<std::string>()[next++]), "\"}");
    return;
  }
  out += '[';
  for (int64_t i = 0; i < tensor.shape()[axis]; ++i) {
    if (i > 0) out += ',';
    AppendBase64(out, tensor, axis + 1, next);
  }
  out += ']';
}

Status AppendOutput(std::string& out, const std::string& name, const Value& value,
                    NonFiniteNumbers& non_finite) {
  const bool is_bytes =
      value.is_tensor() && value.tensor().type() == DataType::kString && name.ends_with("_bytes");
  if (!is_bytes) {
    return AppendNested(out, value, non_finite).WithContext(StrCat("output '", name, "'"));
  }
  size_t next = 0;
  AppendBase64(out, value.tensor(), 0, next);
  return Status::Ok();
}

template <typename ValueOf>
Status AppendObject(std::string& out, const std::vector<NamedValue>& outputs,
                    NonFiniteNumbers& non_finite, ValueOf value_of) {
  out += '{';
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (i > 0) out += ',';
    AppendJsonString(out, outputs[i].name);
    out += ':';
    ONNXD_RETURN_IF_ERROR(
        AppendOutput(out, outputs[i].name, value_of(outputs[i].value), non_finite));
  }
  out += '}';
  return Status::Ok();
}

bool HasRows(const Value& value, int64_t rows) {
  if (value.sequence() != nullptr) {
    return static_cast<int64_t>(value.sequence()->elements.size()) == rows;
  }
  return value.is_tensor() && value.tensor().shape().rank() > 0 &&
         value.tensor().shape()[0] == rows;
}

// Requires HasRows.
Value RowOf(const Value& value, int64_t row) {
  if (value.sequence() != nullptr) return value.sequence()->elements[static_cast<size_t>(row)];
  const Tensor& tensor = value.tensor();
  Shape shape;
  for (int axis = 1; axis < tensor.shape().rank(); ++axis) shape.Append(tensor.shape()[axis]);
  if (tensor.type() == DataType::kString) {
    const auto count = static_cast<size_t>(shape.ElementCount());
    return Tensor::Of<std::string>(
        shape, tensor.elements<std::string>().subspan(static_cast<size_t>(row) * count, count));
  }
  const auto bytes = static_cast<int64_t>(tensor.bytes()) / tensor.shape()[0];
  auto* const data = static_cast<char*>(const_cast<void*>(tensor.raw())) + row * bytes;
  return Tensor::Wrap(tensor.type(), shape, data, tensor.owner());
}

}  // namespace

Result<Instances> ReadInstances(const HttpBody& body, const ModelVersion& version,
                                int64_t max_depth) {
  return InstancesReader(version, max_depth).Read(body);
}

Result<std::string> WritePredictions(const Instances& form, const InferenceResponse& response,
                                     NonFiniteNumbers& non_finite) {
  const auto& outputs = response.outputs;
  std::string out = form.by_row ? "{\"predictions\":" : "{\"outputs\":";
  for (const NamedValue& output : outputs) {
    if (form.by_row && !HasRows(output.value, form.rows)) {
      return InvalidArgument(StrCat("output '", output.name, "' has no row for each of the ",
                                    form.rows, " instances; send \"inputs\" instead"));
    }
  }
  if (outputs.size() == 1) {
    ONNXD_RETURN_IF_ERROR(AppendOutput(out, outputs[0].name, outputs[0].value, non_finite));
    return out + "}";
  }
  if (!form.by_row) {
    ONNXD_RETURN_IF_ERROR(AppendObject(out, outputs, non_finite,
                                       [](const Value& value) -> const Value& { return value; }));
    return out + "}";
  }
  for (int64_t row = 0; row < form.rows; ++row) {
    out += row == 0 ? '[' : ',';
    ONNXD_RETURN_IF_ERROR(AppendObject(out, outputs, non_finite,
                                       [row](const Value& value) { return RowOf(value, row); }));
  }
  return out + "]}";
}

}  // namespace onnxd
