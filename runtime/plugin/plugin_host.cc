#include "runtime/plugin/plugin_host.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <exception>

#include "runtime/base/str_cat.h"
#include "runtime/plugin/plugin_operands.h"

namespace onnxd {
namespace {

constexpr size_t kMaxErrorBytes = 1000;
constexpr size_t kMaxNameBytes = 128;

void SetError(OnnxdContext* context, const char* message) {
  if (context == nullptr || message == nullptr) return;
  context->error.assign(message, strnlen(message, kMaxErrorBytes));
}

template <typename T>
const T* FindAttribute(const OnnxdContext* context, const char* name) {
  if (context == nullptr || context->node == nullptr || name == nullptr) return nullptr;
  return context->node->attributes.Find<T>(name);
}

template <typename T>
int32_t ScalarAttribute(OnnxdContext* context, const char* name, T* value) {
  const T* found = FindAttribute<T>(context, name);
  if (found == nullptr || value == nullptr) return 0;
  *value = *found;
  return 1;
}

template <typename List, typename T>
int32_t ListAttribute(OnnxdContext* context, const char* name, const T** values, size_t* count) {
  const List* found = FindAttribute<List>(context, name);
  if (found == nullptr || values == nullptr || count == nullptr) return 0;
  *values = found->data();
  *count = found->size();
  return 1;
}

size_t InputCount(OnnxdContext* context) {
  if (context->inference != nullptr) return context->inference->input_count();
  return context->kernel == nullptr ? 0 : context->kernel->node.inputs.size();
}

size_t OutputCount(OnnxdContext* context) {
  if (context->inference != nullptr) return context->inference->output_count();
  return context->kernel == nullptr ? 0 : context->kernel->node.outputs.size();
}

int32_t ElementType(const ValueType& type) {
  return type.is_tensor() ? static_cast<int32_t>(type.element) : 0;
}

int32_t InputType(OnnxdContext* context, size_t input) {
  if (context->kernel != nullptr) {
    const auto types = context->kernel->input_types;
    return input < types.size() ? ElementType(types[input]) : 0;
  }
  if (context->inference == nullptr || !context->inference->HasInput(input)) return 0;
  return static_cast<int32_t>(context->inference->input(input).element);
}

int32_t OutputType(OnnxdContext* context, size_t output) {
  if (context->kernel == nullptr || output >= context->kernel->output_types.size()) return 0;
  return ElementType(context->kernel->output_types[output]);
}

// Null: unknown.
const SymbolicShape* InputShape(const OnnxdContext* context, size_t input) {
  if (context->kernel != nullptr) {
    const auto types = context->kernel->input_types;
    return input < types.size() && types[input].is_tensor() && types[input].shape
               ? &*types[input].shape
               : nullptr;
  }
  return context->inference == nullptr ? nullptr : context->inference->shape(input);
}

int32_t InputRank(OnnxdContext* context, size_t input) {
  const SymbolicShape* shape = InputShape(context, input);
  return shape == nullptr ? -1 : static_cast<int32_t>(shape->size());
}

const int64_t* KeepDims(OnnxdContext* context, std::vector<int64_t> dims) {
  context->dims_storage.push_back(std::move(dims));
  return context->dims_storage.back().data();
}

const int64_t* InputDims(OnnxdContext* context, size_t input) {
  const SymbolicShape* shape = InputShape(context, input);
  if (shape == nullptr || shape->empty()) return nullptr;
  std::vector<int64_t> dims;
  for (const Dimension& dim : *shape) dims.push_back(dim.known() ? dim.value : -1);
  return KeepDims(context, std::move(dims));
}

int32_t Option(OnnxdContext* context, const char* name, const char** value) {
  if (context->options == nullptr || name == nullptr || value == nullptr) return 0;
  const auto found = context->options->find(name);
  if (found == context->options->end()) return 0;
  *value = found->second.c_str();
  return 1;
}

const char* NodeName(OnnxdContext* context) {
  return context->node == nullptr ? "" : context->node->name.c_str();
}
const char* NodeDomain(OnnxdContext* context) {
  return context->node == nullptr ? "" : context->node->domain.c_str();
}
const char* NodeOperator(OnnxdContext* context) {
  return context->node == nullptr ? "" : context->node->op_type.c_str();
}
int32_t NodeVersion(OnnxdContext* context) {
  return context->node == nullptr ? 0 : static_cast<int32_t>(context->node->since_version);
}

int32_t ConstantInput(OnnxdContext* context, size_t input, OnnxdTensor* value) {
  if (context->kernel == nullptr || value == nullptr) return 0;
  const Initializer* constant = context->kernel->constant_input(input);
  if (constant == nullptr || constant->type() == DataType::kString) return 0;
  auto tensor = constant->Materialize();
  if (!tensor.ok()) return 0;
  context->constants.push_back(std::move(*tensor));
  const Tensor& kept = context->constants.back();
  const std::vector<int64_t>& dims = kept.shape().dims();
  *value = ToPluginTensor(kept.type(), dims, const_cast<void*>(kept.raw()));
  value->dims = KeepDims(context, dims);
  return 1;
}

void ReadOnHost(OnnxdContext* context, size_t input) {
  if (context->on_host == nullptr || input >= context->on_host->size()) return;
  (*context->on_host)[input] = true;
}

OnnxdStatus Misused(OnnxdContext* context, std::string why) {
  context->misused = true;
  context->error = std::move(why);
  return ONNXD_INVALID_ARGUMENT;
}

OnnxdStatus SetOutput(OnnxdContext* context, size_t output, int32_t data_type, int32_t rank,
                      const int64_t* dims) {
  InferenceContext* inference = context->inference;
  if (inference == nullptr) return Misused(context, "set_output outside of infer");
  if (output >= inference->output_count()) {
    return Misused(context, StrCat("output ", output, " of ", inference->output_count()));
  }
  const auto type = static_cast<DataType>(data_type);
  if (!IsDataType(data_type) || type == DataType::kString) {
    return Misused(context, StrCat("output ", output, " with element type ", data_type));
  }
  if (rank < -1 || rank > kMaxRank || (rank > 0 && dims == nullptr)) {
    return Misused(context, StrCat("output ", output, " with rank ", rank));
  }
  inference->SetType(output, ValueType::TensorOf(type));
  if (rank < 0) return ONNXD_OK;
  SymbolicShape shape;
  for (int32_t axis = 0; axis < rank; ++axis) {
    if (dims[axis] < -1) {
      return Misused(context, StrCat("output ", output, " with dimension ", dims[axis]));
    }
    shape.push_back(dims[axis] < 0 ? Dimension() : Dimension(dims[axis]));
  }
  inference->SetShape(output, std::move(shape));
  return ONNXD_OK;
}

StatusCode CodeOf(OnnxdStatus status) {
  switch (status) {
    case ONNXD_INVALID_ARGUMENT:
    case ONNXD_RESOURCE_EXHAUSTED:
    case ONNXD_UNIMPLEMENTED:
    case ONNXD_UNAVAILABLE:
      return static_cast<StatusCode>(status);
    default:
      return StatusCode::kInternal;
  }
}

}  // namespace

const OnnxdHost& PluginHost() {
  static const OnnxdHost host = {
      sizeof(OnnxdHost),
      ONNXD_PLUGIN_API_VERSION,
      SetError,
      ScalarAttribute<int64_t>,
      ScalarAttribute<float>,
      ListAttribute<std::string, char>,
      ListAttribute<std::vector<int64_t>, int64_t>,
      ListAttribute<std::vector<float>, float>,
      InputCount,
      OutputCount,
      InputType,
      InputRank,
      InputDims,
      SetOutput,
      Option,
      NodeName,
      NodeDomain,
      NodeOperator,
      NodeVersion,
      OutputType,
      ConstantInput,
      ReadOnHost,
  };
  return host;
}

bool IsPluginName(const char* text, std::string_view also) {
  if (text == nullptr) return false;
  const std::string_view name(text, strnlen(text, kMaxNameBytes + 1));
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [&](unsigned char c) {
           return std::isalnum(c) != 0 || also.find(static_cast<char>(c)) != also.npos;
         });
}

Status CallPlugin(OnnxdContext& context, std::string_view what, FunctionRef<OnnxdStatus()> call) {
  OnnxdStatus status = ONNXD_OK;
  try {
    status = call();
  } catch (const std::exception& error) {
    return Internal(StrCat(what, " threw an exception: ", error.what()));
  } catch (...) {
    return Internal(StrCat(what, " threw an exception"));
  }
  if (context.misused) return Internal(StrCat(what, " answered nonsense: ", context.error));
  if (status == ONNXD_OK) return Status::Ok();
  const std::string why = context.error.empty() ? StrCat("status ", status) : context.error;
  return Status(CodeOf(status), StrCat(what, ": ", why));
}

}  // namespace onnxd
