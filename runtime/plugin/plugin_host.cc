#include "runtime/plugin/plugin_host.h"

#include <cstring>
#include <exception>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kMaxErrorBytes = 1000;

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
  return context->inference == nullptr ? 0 : context->inference->input_count();
}

size_t OutputCount(OnnxdContext* context) {
  return context->inference == nullptr ? 0 : context->inference->output_count();
}

int32_t InputType(OnnxdContext* context, size_t input) {
  if (context->inference == nullptr || !context->inference->HasInput(input)) return 0;
  return static_cast<int32_t>(context->inference->input(input).element);
}

int32_t InputRank(OnnxdContext* context, size_t input) {
  const SymbolicShape* shape =
      context->inference == nullptr ? nullptr : context->inference->shape(input);
  return shape == nullptr ? -1 : static_cast<int32_t>(shape->size());
}

const int64_t* InputDims(OnnxdContext* context, size_t input) {
  const SymbolicShape* shape =
      context->inference == nullptr ? nullptr : context->inference->shape(input);
  if (shape == nullptr || shape->empty()) return nullptr;
  std::vector<int64_t> dims;
  for (const Dimension& dim : *shape) dims.push_back(dim.known() ? dim.value : -1);
  context->dims_storage.push_back(std::move(dims));
  return context->dims_storage.back().data();
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
  };
  return host;
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
