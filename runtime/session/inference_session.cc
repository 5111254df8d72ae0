#include "runtime/session/inference_session.h"

#include "runtime/base/exceptions.h"
#include "runtime/base/str_cat.h"
#include "runtime/format/model_reader.h"
#include "runtime/graph/model.h"
#include "runtime/session/graph_executor.h"
#include "runtime/session/model_preparation.h"

namespace onnxd {
namespace {

std::vector<TensorSignature> SignatureOf(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<TensorSignature> signature;
  for (const ValueId id : ids) signature.push_back({graph.value(id).name, graph.value(id).type});
  return signature;
}

ModelInfo InfoOf(const Model& model) {
  ModelInfo info;
  info.ir_version = model.ir_version;
  info.opsets = model.opsets;
  info.producer_name = model.producer_name;
  info.producer_version = model.producer_version;
  info.model_version = model.model_version;
  info.metadata = model.metadata;
  for (const Node& node : model.graph.nodes) {
    ++info.operator_counts[node.domain.empty() ? node.op_type
                                               : StrCat(node.domain, "::", node.op_type)];
  }
  for (const auto& [id, initializer] : model.graph.initializers) {
    info.parameters += initializer.shape().ElementCount();
  }
  return info;
}

// A dimension that one symbol names in several inputs must be the same in all of them.
Status CheckSymbols(const std::vector<TensorSignature>& signature, std::span<const Value> inputs) {
  std::map<std::string, std::pair<int64_t, std::string>> bound;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_tensor() || !signature[i].type.shape) continue;
    const SymbolicShape& shape = *signature[i].type.shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis].known() || shape[axis].symbol.empty()) continue;
      const int64_t dim = inputs[i].tensor().shape()[static_cast<int>(axis)];
      const auto [entry, added] =
          bound.emplace(shape[axis].symbol, std::pair(dim, signature[i].name));
      if (!added && entry->second.first != dim) {
        return InvalidArgument(StrCat("dimension '", shape[axis].symbol, "' is ",
                                      entry->second.first, " in input '", entry->second.second,
                                      "' but ", dim, " in input '", signature[i].name, "'"));
      }
    }
  }
  return Status::Ok();
}

}  // namespace

InferenceSession::~InferenceSession() = default;

Result<std::unique_ptr<InferenceSession>> InferenceSession::Load(const std::string& path,
                                                                 SessionOptions options) {
  return CatchExceptions([&]() -> Result<std::unique_ptr<InferenceSession>> {
    ONNXD_ASSIGN_OR_RETURN(Model model, ReadModelFile(path));
    return Make(std::move(model), std::move(options));
  });
}

Result<std::unique_ptr<InferenceSession>> InferenceSession::LoadBytes(std::string bytes,
                                                                      SessionOptions options) {
  return CatchExceptions([&]() -> Result<std::unique_ptr<InferenceSession>> {
    ONNXD_ASSIGN_OR_RETURN(Model model, ReadModelBytes(std::move(bytes)));
    return Make(std::move(model), std::move(options));
  });
}

Result<std::unique_ptr<InferenceSession>> InferenceSession::FromModel(Model model,
                                                                      SessionOptions options) {
  return CatchExceptions([&] { return Make(std::move(model), std::move(options)); });
}

Result<std::unique_ptr<InferenceSession>> InferenceSession::Make(Model model,
                                                                 SessionOptions options) {
  if (options.pool == nullptr) options.pool = std::make_shared<ThreadPool>(1);
  ONNXD_RETURN_IF_ERROR(CheckModel(model));
  std::unique_ptr<InferenceSession> session(new InferenceSession());
  session->info_ = InfoOf(model);
  session->inputs_ = SignatureOf(model.graph, model.graph.inputs);
  session->outputs_ = SignatureOf(model.graph, model.graph.outputs);
  ONNXD_RETURN_IF_ERROR(PrepareModel(model, options, Stage::kFinal));

  ExecutorOptions executor{options.providers, options.pool, options.max_run_bytes,
                           options.max_plans};
  ONNXD_ASSIGN_OR_RETURN(
      session->executor_,
      GraphExecutor::Create(std::make_shared<Graph>(std::move(model.graph)), std::move(executor)));
  for (const CompiledNode& node : session->executor_->nodes()) {
    ++session->info_.nodes_by_provider[node.provider];
  }
  return session;
}

Status InferenceSession::CheckInput(size_t index, const Value& value) const {
  const TensorSignature& expected = inputs_[index];
  const auto fail = [&](const std::string& got) {
    return InvalidArgument(
        StrCat("input '", expected.name, "': expected ", ToString(expected.type), ", got ", got));
  };
  if (!expected.type.is_tensor()) {
    const bool matches = (expected.type.kind == ValueType::Kind::kSequence && value.sequence()) ||
                         (expected.type.kind == ValueType::Kind::kMap && value.map()) ||
                         (expected.type.kind == ValueType::Kind::kOptional && value.optional());
    return matches ? Status::Ok() : fail("a value of another kind");
  }
  if (!value.is_tensor()) return fail("a value that is no tensor");
  const Tensor& tensor = value.tensor();
  const auto got = [&] { return Describe(tensor.type(), tensor.shape()); };
  if (tensor.type() != expected.type.element) return fail(got());
  if (!expected.type.shape) return Status::Ok();
  const SymbolicShape& shape = *expected.type.shape;
  if (static_cast<int>(shape.size()) != tensor.shape().rank()) return fail(got());
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis].known() && shape[axis].value != tensor.shape()[static_cast<int>(axis)]) {
      return fail(got());
    }
  }
  return Status::Ok();
}

Result<std::vector<Value>> InferenceSession::Run(std::span<const Value> inputs,
                                                 const RunOptions& options) const {
  if (inputs.size() != inputs_.size()) {
    return InvalidArgument(
        StrCat("the model takes ", inputs_.size(), " inputs, got ", inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) ONNXD_RETURN_IF_ERROR(CheckInput(i, inputs[i]));
  if (inputs.size() > 1) ONNXD_RETURN_IF_ERROR(CheckSymbols(inputs_, inputs));
  return CatchExceptions([&] { return executor_->Run(inputs, options); });
}

}  // namespace onnxd
