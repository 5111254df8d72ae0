#include "runtime/session/inference_session.h"

#include <filesystem>

#include "runtime/base/exceptions.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/format/model_reader.h"
#include "runtime/graph/model.h"
#include "runtime/session/cache_entry.h"
#include "runtime/session/graph_executor.h"
#include "runtime/session/model_preparation.h"
#include "runtime/session/row_independence.h"

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
  info.rows_depend = WhyRowsDepend(model.graph);
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

// The graph and the bodies of its control flow.
void ForEachGraph(Graph& graph, void (*visit)(Graph&)) {
  visit(graph);
  for (Node& node : graph.nodes) {
    for (auto& [name, attribute] : node.attributes.entries()) {
      if (auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute)) ForEachGraph(**body, visit);
    }
  }
}

// What passes read and asked for is not what kernels will.
void ForgetUses(Graph& graph) {
  for (const auto& [id, initializer] : graph.initializers) initializer.ForgetUses();
}

// Nothing that runs looks at them.
void DropInitializers(Graph& graph) { graph.initializers.clear(); }

}  // namespace

InferenceSession::InferenceSession() = default;
InferenceSession::~InferenceSession() = default;

Result<std::unique_ptr<InferenceSession>> InferenceSession::Load(const std::string& path,
                                                                 SessionOptions options) {
  const ChargeTo charge(options.memory.get());
  return CatchExceptions([&]() -> Result<std::unique_ptr<InferenceSession>> {
    std::unique_ptr<CacheEntry> entry = EntryOf(path, options);
    if (entry != nullptr) {
      auto prepared = FindPrepared(*entry, options);
      if (prepared.ok()) return prepared;
    }
    ONNXD_ASSIGN_OR_RETURN(Model model, ReadModelFile(path));
    return Make(std::move(model), std::move(options), std::move(entry));
  });
}

Result<std::unique_ptr<InferenceSession>> InferenceSession::LoadBytes(std::string bytes,
                                                                      SessionOptions options) {
  const ChargeTo charge(options.memory.get());
  return CatchExceptions([&]() -> Result<std::unique_ptr<InferenceSession>> {
    ONNXD_ASSIGN_OR_RETURN(Model model, ReadModelBytes(std::move(bytes)));
    return Make(std::move(model), std::move(options), nullptr);
  });
}

Result<std::unique_ptr<InferenceSession>> InferenceSession::FromModel(Model model,
                                                                      SessionOptions options) {
  const ChargeTo charge(options.memory.get());
  return CatchExceptions([&] { return Make(std::move(model), std::move(options), nullptr); });
}

Result<std::unique_ptr<InferenceSession>> InferenceSession::FindPrepared(
    const CacheEntry& entry, const SessionOptions& options) {
  std::optional<PreparedModel> found = FindPreparedModel(entry, options);
  if (!found) return NotFound("not in the cache");
  std::unique_ptr<InferenceSession> session(new InferenceSession());
  session->inputs_ = std::move(found->inputs);
  session->outputs_ = std::move(found->outputs);
  session->info_ = std::move(found->info);
  const Status made = session->MakeExecutor(std::move(found->graph), options, false);
  if (!made.ok()) {
    LogWarning(StrCat(entry.files[0].path, ": ", made.ToString()));
    entry.cache->Reject(found->key);
    return made;
  }
  session->from_cache_ = true;
  return session;
}

Status InferenceSession::MakeExecutor(Graph graph, const SessionOptions& options,
                                      bool keep_initializers) {
  if (EffectivePrecision(options) != options.precision) {
    LogWarning(StrCat("precision ", PrecisionName(options.precision),
                      " is not faster than fp32 on this machine: computing in fp32"));
  }
  memory_ = options.memory;
  ExecutorOptions executor{options.providers, options.pool, options.max_run_bytes,
                           options.max_plans};
  if (executor.pool == nullptr) executor.pool = std::make_shared<ThreadPool>(1);
  executor.denormals_as_zero = options.denormals_as_zero;
  executor.keep_initializers = keep_initializers;
  auto shared = std::make_shared<Graph>(std::move(graph));
  ONNXD_ASSIGN_OR_RETURN(executor_, GraphExecutor::Create(shared, std::move(executor)));
  if (keep_initializers) to_save_->graph = std::move(shared);
  for (const CompiledNode& node : executor_->nodes()) ++info_.nodes_by_provider[node.provider];
  return Status::Ok();
}

bool InferenceSession::wants_saving() const {
  std::lock_guard lock(cache_mutex_);
  return to_save_ != nullptr;
}

Result<Tensor> InferenceSession::MakeInput(DataType type, const Shape& shape) const {
  return executor_->MakeInput(type, shape);
}

Result<Value> InferenceSession::MoveInput(const Value& value) const {
  return executor_->MoveInput(value);
}

std::function<void()> InferenceSession::KeepOutputMemory() const {
  return executor_->KeepOutputMemory();
}

bool InferenceSession::runs_on_device() const { return executor_->runs_on_device(); }

Status InferenceSession::SaveToCache() const {
  std::unique_ptr<CacheEntry> entry;
  {
    std::lock_guard lock(cache_mutex_);
    entry = std::move(to_save_);
  }
  if (entry == nullptr) return Status::Ok();
  const Status stored = CatchExceptions([&] { return StorePreparedModel(*entry, *this); });
  ForEachGraph(*entry->graph, DropInitializers);
  return stored;
}

Result<std::unique_ptr<InferenceSession>> InferenceSession::Make(
    Model model, SessionOptions options, std::unique_ptr<CacheEntry> entry) {
  if (options.pool == nullptr) options.pool = std::make_shared<ThreadPool>(1);
  ONNXD_RETURN_IF_ERROR(CheckModel(model));
  std::unique_ptr<InferenceSession> session(new InferenceSession());
  session->info_ = InfoOf(model);
  const size_t own_inputs = model.graph.inputs.size();
  ONNXD_RETURN_IF_ERROR(AddLastRows(options.last_rows, model.graph));
  ONNXD_RETURN_IF_ERROR(AddDroppedTokens(options.dropped_tokens, model.graph));
  if (entry != nullptr && model.graph.inputs.size() == own_inputs) entry->key = entry->plain_key;
  session->inputs_ = SignatureOf(model.graph, model.graph.inputs);
  session->outputs_ = SignatureOf(model.graph, model.graph.outputs);
  // A loop over all rows may be found to be an operator that takes each by itself. Providers' own
  // operators say less.
  std::string& why = session->info_.rows_depend;
  ONNXD_RETURN_IF_ERROR(PrepareModel(model, options, Stage::kFinal, [&why](const Graph& graph) {
    if (!why.empty() && WhyRowsDepend(graph).empty()) why.clear();
  }));
  ForEachGraph(model.graph, ForgetUses);
  session->to_save_ = std::move(entry);
  if (session->to_save_ != nullptr) {
    for (const std::string& file : model.external_files) {
      const auto folder = std::filesystem::path(session->to_save_->files[0].path).parent_path();
      ONNXD_ASSIGN_OR_RETURN(FileState state,
                             PreparedModelCache::StateOf((folder / file).string()));
      session->to_save_->files.push_back(std::move(state));
    }
  }
  ONNXD_RETURN_IF_ERROR(
      session->MakeExecutor(std::move(model.graph), options, session->to_save_ != nullptr));
  return session;
}

Status CheckInput(const TensorSignature& expected, const Value& value) {
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
  for (size_t i = 0; i < inputs.size(); ++i) {
    ONNXD_RETURN_IF_ERROR(CheckInput(inputs_[i], inputs[i]));
  }
  if (inputs.size() > 1) ONNXD_RETURN_IF_ERROR(CheckSymbols(inputs_, inputs));
  const ChargeTo charge(memory_.get());
  return CatchExceptions([&] { return executor_->Run(inputs, options); });
}

}  // namespace onnxd
