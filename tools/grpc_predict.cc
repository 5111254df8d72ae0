#include "tools/grpc_predict.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/str_cat.h"
#include "server/grpc/parse_message.h"
#include "server/grpc/tensor_messages.h"
#include "server/inference/data_type_name.h"
#include "server/inference/json_writer.h"
#include "tools/grpc_client.h"

namespace onnxd {
namespace {

using nlohmann::json;
using InputMetadata = inference::ModelMetadataResponse::TensorMetadata;

Status AddNumber(const json& number, bool is_float, v1::Tensor& tensor) {
  if (number.is_boolean()) {
    if (is_float) return InvalidArgument("is a boolean where numbers are expected");
    tensor.add_int_values(number.get<bool>() ? 1 : 0);
    return Status::Ok();
  }
  if (!number.is_number()) return InvalidArgument(StrCat("has ", number.type_name(), " in it"));
  if (is_float) {
    tensor.add_float_values(number.get<double>());
  } else if (number.is_number_unsigned() && tensor.datatype() == "UINT64") {
    tensor.add_uint_values(number.get<uint64_t>());
  } else if (number.is_number_integer()) {
    tensor.add_int_values(number.get<int64_t>());
  } else {
    const double value = number.get<double>();
    if (value != std::floor(value) || std::abs(value) > 0x1p53) {
      return InvalidArgument(StrCat("has ", value, " where whole numbers are expected"));
    }
    tensor.add_int_values(static_cast<int64_t>(value));
  }
  return Status::Ok();
}

Status AddElement(const json& element, v1::Tensor& tensor) {
  if (tensor.datatype() == "BYTES") {
    if (!element.is_string()) return InvalidArgument("has elements that are no strings");
    tensor.add_bytes_values(element.get<std::string>());
    return Status::Ok();
  }
  const std::string& type = tensor.datatype();
  return AddNumber(element, type.starts_with("FP") || type.starts_with("BF"), tensor);
}

// Nested arrays, row-major; all of one depth have one length.
Status AddElements(const json& value, size_t depth, std::vector<int64_t>& shape,
                   v1::Tensor& tensor) {
  if (!value.is_array()) {
    if (depth != shape.size()) return InvalidArgument("is not of one shape");
    return AddElement(value, tensor);
  }
  const auto size = static_cast<int64_t>(value.size());
  const bool first = depth == shape.size() && tensor.float_values().empty() &&
                     tensor.int_values().empty() && tensor.uint_values().empty() &&
                     tensor.bytes_values().empty();
  if (first) {
    shape.push_back(size);
  } else if (depth >= shape.size() || shape[depth] != size) {
    return InvalidArgument("is not of one shape");
  }
  for (const json& element : value) {
    ONNXD_RETURN_IF_ERROR(AddElements(element, depth + 1, shape, tensor));
  }
  return Status::Ok();
}

Status AddInput(const InputMetadata& input, const json& value, v1::PredictRequest& request) {
  v1::Tensor& tensor = *request.add_inputs();
  tensor.set_name(input.name());
  tensor.set_datatype(input.datatype());
  std::vector<int64_t> shape;
  const Status added = AddElements(value, 0, shape, tensor);
  if (!added.ok()) return added.WithContext(StrCat("input '", input.name(), "'"));
  if (static_cast<int>(shape.size()) + 1 == input.shape_size()) shape.insert(shape.begin(), 1);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  return Status::Ok();
}

}  // namespace

Result<v1::PredictRequest> PredictRequestOf(const std::string& text,
                                            const inference::ModelMetadataResponse& model) {
  const json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) return InvalidArgument("the input is no JSON");
  v1::PredictRequest request;
  request.set_model(model.name());
  const bool named = document.is_object() && !document.contains("input");
  if (!named) {
    if (model.inputs_size() != 1) {
      return InvalidArgument(StrCat("model '", model.name(), "' has ", model.inputs_size(),
                                    " inputs: name them with {\"inputs\": {\"name\": ...}}"));
    }
    const json& value = document.is_object() ? document["input"] : document;
    ONNXD_RETURN_IF_ERROR(AddInput(model.inputs(0), value, request));
    return request;
  }
  const json& values = document.contains("inputs") ? document["inputs"] : document;
  if (!values.is_object()) return InvalidArgument("\"inputs\" must be an object of arrays");
  for (const auto& item : values.items()) {
    const std::string& name = item.key();
    const auto input = std::find_if(model.inputs().begin(), model.inputs().end(),
                                    [&](const InputMetadata& i) { return i.name() == name; });
    if (input == model.inputs().end()) {
      return InvalidArgument(StrCat("model '", model.name(), "' has no input '", name, "'"));
    }
    ONNXD_RETURN_IF_ERROR(AddInput(*input, item.value(), request));
  }
  return request;
}

Result<std::string> PredictAnswerText(const v1::PredictResponse& response) {
  NonFiniteNumbers non_finite;
  const bool one = response.outputs_size() == 1;
  std::string out = one ? "{\"prediction\":" : "{\"predictions\":{";
  for (int i = 0; i < response.outputs_size(); ++i) {
    const v1::Tensor& output = response.outputs(i);
    ONNXD_ASSIGN_OR_RETURN(Tensor tensor, TensorOf(output, DataType::kUndefined));
    if (i > 0) out += ',';
    if (!one) {
      AppendJsonString(out, output.name());
      out += ':';
    }
    ONNXD_RETURN_IF_ERROR(AppendNested(out, Value(std::move(tensor)), non_finite));
  }
  if (!one) out += '}';
  out += StrCat(",\"inference_time_ms\":", std::round(response.inference_time_ms() * 1e3) / 1e3,
                ",\"model\":");
  AppendJsonString(out, response.model());
  out += ",\"model_version\":";
  AppendJsonString(out, response.model_version());
  out += '}';
  return out;
}

Result<std::string> PredictWithGrpc(const ServerAddress& server, const std::string& model,
                                    const std::string& text) {
  inference::ModelMetadataRequest question;
  question.set_name(model);
  ONNXD_ASSIGN_OR_RETURN(const std::string described,
                         CallGrpc(server, "/inference.GRPCInferenceService/ModelMetadata",
                                  question.SerializeAsString()));
  ONNXD_ASSIGN_OR_RETURN(const auto metadata,
                         ParseMessage<inference::ModelMetadataResponse>(described));
  ONNXD_ASSIGN_OR_RETURN(const auto request, PredictRequestOf(text, metadata));
  ONNXD_ASSIGN_OR_RETURN(
      const std::string answered,
      CallGrpc(server, "/onnxd.v1.PredictionService/Predict", request.SerializeAsString()));
  ONNXD_ASSIGN_OR_RETURN(const auto response, ParseMessage<v1::PredictResponse>(answered));
  return PredictAnswerText(response);
}

}  // namespace onnxd
