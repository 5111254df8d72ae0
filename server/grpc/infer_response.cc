#include "server/grpc/infer_response.h"

#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/format/wire_writer.h"
#include "server/inference/binary_tensor.h"
#include "server/inference/data_type_name.h"
#include "server/inference/output_tensor.h"
#include "server/inference/shared_memory_tensor.h"

namespace onnxd {
namespace {

// Numbers of fields, as in open_inference.proto.
constexpr uint32_t kModelName = 1, kModelVersion = 2, kId = 3, kParameters = 4, kOutputs = 5,
                   kRawContents = 6;                      // ModelInferResponse
constexpr uint32_t kName = 1, kDatatype = 2, kShape = 3;  // InferOutputTensor
constexpr uint32_t kBoolParameter = 1, kInt64Parameter = 2, kStringParameter = 3;  // InferParameter
constexpr uint32_t kErrorMessage = 1, kInferResponse = 2;  // ModelStreamInferResponse
constexpr uint32_t kKey = 1, kValue = 2;                   // the entry of a map

constexpr size_t kMostBytes = std::numeric_limits<int32_t>::max();
constexpr size_t kHeadBytes = 256;  // about, of an answer and of an output

template <typename Fill>
void WriteParameter(WireWriter& writer, std::string_view name, Fill fill) {
  writer.Message(kParameters, [&](WireWriter& entry) {
    entry.Bytes(kKey, name);
    entry.Message(kValue, fill);
  });
}

void WriteRange(WireWriter& writer, const SharedMemoryRange& range, uint64_t bytes) {
  const auto number = [&](std::string_view name, uint64_t value) {
    WriteParameter(writer, name, [&](WireWriter& out) { out.Varint(kInt64Parameter, value); });
  };
  WriteParameter(writer, "shared_memory_region",
                 [&](WireWriter& out) { out.Bytes(kStringParameter, range.region); });
  number("shared_memory_byte_size", bytes);
  if (range.offset > 0) number("shared_memory_offset", range.offset);
}

// All of an output but its elements.
Status WriteOutput(WireWriter& writer, std::string_view name, const Tensor& tensor) {
  const std::string_view type = ProtocolTypeName(tensor.type());
  if (type.empty()) {
    return Unimplemented(StrCat("output '", name, "' of type ", DataTypeName(tensor.type()),
                                " has no protocol datatype"));
  }
  if (!name.empty()) writer.Bytes(kName, name);
  writer.Bytes(kDatatype, type);
  if (tensor.shape().rank() == 0) return Status::Ok();
  writer.Message(kShape, [&](WireWriter& dims) {
    for (const int64_t dim : tensor.shape()) dims.Packed(static_cast<uint64_t>(dim));
  });
  return Status::Ok();
}

class ResponseWriter {
 public:
  ResponseWriter(const InferenceResponse& result, const SharedMemory& memory) : memory_(memory) {
    size_t bytes = kHeadBytes;
    for (const NamedValue& output : result.outputs) {
      bytes += kHeadBytes;
      if (output.value.is_tensor()) bytes += output.value.tensor().bytes();
    }
    if (bytes <= kMostBytes) writer_.Reserve(bytes);
    WriteText(kModelName, result.model);
    WriteText(kModelVersion, result.version);
    WriteText(kId, result.id);
  }

  Status Add(const std::string& name, const Tensor& tensor, const OutputForm& form) {
    uint64_t shared = 0;
    if (form.shared_memory) {
      ONNXD_ASSIGN_OR_RETURN(shared,
                             WriteToSharedMemory(memory_, *form.shared_memory, tensor, name));
    }
    Status written;
    writer_.Message(kOutputs, [&](WireWriter& output) {
      written = WriteOutput(output, name, tensor);
      if (form.shared_memory) WriteRange(output, *form.shared_memory, shared);
    });
    ONNXD_RETURN_IF_ERROR(written);
    // Clients count on one for each output, also where it lies in shared memory.
    const size_t raw = form.shared_memory ? 0 : SizeOfTensorBytes(tensor);
    raw_bytes_ += raw;
    if (raw_bytes_ > kMostBytes - kHeadBytes) {
      return ResourceExhausted(StrCat("the outputs have ", raw_bytes_,
                                      " bytes, more than a gRPC message may have; request fewer, "
                                      "or use REST or shared memory"));
    }
    std::string& out = writer_.Begin(kRawContents, raw);
    if (!form.shared_memory) AppendTensorBytes(out, tensor);
    return Status::Ok();
  }

  std::string Take() && { return std::move(writer_).Take(); }

 private:
  // Fields that are empty are left out.
  void WriteText(uint32_t field, std::string_view text) {
    if (!text.empty()) writer_.Bytes(field, text);
  }

  const SharedMemory& memory_;
  WireWriter writer_;
  size_t raw_bytes_ = 0;
};

}  // namespace

Result<std::string> WriteInferResponse(const InferenceResponse& result,
                                       const std::vector<OutputForm>& forms,
                                       const SharedMemory& memory, NonFiniteNumbers& non_finite) {
  ResponseWriter writer(result, memory);
  const OutputForm raw;
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const NamedValue& output = result.outputs[i];
    const OutputForm& form = i < forms.size() ? forms[i] : raw;
    if (output.value.is_tensor() && !form.classification) {
      ONNXD_RETURN_IF_ERROR(writer.Add(output.name, output.value.tensor(), form));
      continue;
    }
    ONNXD_ASSIGN_OR_RETURN(const Tensor tensor,
                           OutputTensor(output, form.classification, non_finite));
    ONNXD_RETURN_IF_ERROR(writer.Add(output.name, tensor, form));
  }
  return std::move(writer).Take();
}

std::string WriteStreamAnswer(std::string_view response) {
  WireWriter last;
  WriteParameter(last, "triton_final_response",
                 [](WireWriter& value) { value.Varint(kBoolParameter, 1); });
  const std::string parameter = std::move(last).Take();
  WireWriter writer;
  writer.Reserve(response.size() + parameter.size() + kHeadBytes);
  writer.Begin(kInferResponse, response.size() + parameter.size()).append(response) += parameter;
  return std::move(writer).Take();
}

std::string WriteStreamPart(std::string_view response) {
  WireWriter writer;
  writer.Reserve(response.size() + kHeadBytes);
  writer.Begin(kInferResponse, response.size()).append(response);
  return std::move(writer).Take();
}

std::string WriteStreamError(std::string_view message, std::string_view id) {
  WireWriter writer;
  writer.Bytes(kErrorMessage, message);
  writer.Message(kInferResponse, [&](WireWriter& response) { response.Bytes(kId, id); });
  return std::move(writer).Take();
}

}  // namespace onnxd
