#include "runtime/ops/shape_inference.h"

#include <array>

#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"
#include "runtime/ops/op_schema.h"

namespace onnxd {
namespace {

// The one tensor type in the set, if it has exactly one member.
std::optional<DataType> OnlyTensorType(const TypeSet& set) {
  if (set.other || set.sequence != 0 || set.optional != 0 || set.tensor == 0) return std::nullopt;
  if ((set.tensor & (set.tensor - 1)) != 0) return std::nullopt;
  return static_cast<DataType>(__builtin_ctz(set.tensor));
}

// Element types that the schema's constraints decide.
void InferElementTypes(InferenceContext& context) {
  const Node& node = context.node();
  const OpSchema* schema = FindOpSchema(node.domain, node.op_type, node.since_version);
  if (schema == nullptr) return;
  constexpr size_t kMaxVariables = 32;
  std::array<const ValueType*, kMaxVariables> bound{};
  for (size_t i = 0; i < context.input_count(); ++i) {
    const OperandRow* row = schema->Input(static_cast<int>(i));
    if (row == nullptr || row->variable < 0 || !context.HasInput(i)) continue;
    if (static_cast<size_t>(row->variable) < kMaxVariables && context.input(i).known()) {
      bound[static_cast<size_t>(row->variable)] = &context.input(i);
    }
  }
  for (size_t i = 0; i < context.output_count(); ++i) {
    const OperandRow* row = schema->Output(static_cast<int>(i));
    if (row == nullptr) continue;
    const ValueType* same = row->variable >= 0 && static_cast<size_t>(row->variable) < kMaxVariables
                                ? bound[static_cast<size_t>(row->variable)]
                                : nullptr;
    if (same != nullptr) {
      ValueType type = *same;
      type.shape.reset();
      context.SetType(i, std::move(type));
    } else if (const auto only = OnlyTensorType(schema->type_sets[row->type_set])) {
      context.SetElement(i, *only);
    }
  }
}

// A dimension of the value `name`: what was inferred, else what was declared.
Dimension MergedDimension(const Dimension& inferred, const Dimension& declared,
                          std::string_view name, size_t axis) {
  if (inferred.known()) return inferred;
  const bool unnamed = inferred == Dimension::Unnamed();
  if (!inferred.symbol.empty() && !unnamed) return inferred;
  if (declared.known() || !declared.symbol.empty()) return declared;
  return unnamed ? Dimension::Unnamed(name, axis) : declared;
}

// What both sides know of one value; dimensions prefer numbers, then symbols.
Status Merge(const ValueType& inferred, ValueType& declared, std::string_view name) {
  if (!inferred.known()) return Status::Ok();
  if (!declared.known()) {
    declared = inferred;
    declared.shape.reset();
  }
  // A value may be declared optional, or not, on either side of a control-flow boundary.
  if (inferred.kind != declared.kind && (inferred.kind == ValueType::Kind::kOptional ||
                                         declared.kind == ValueType::Kind::kOptional)) {
    return Status::Ok();
  }
  if (inferred.kind != declared.kind ||
      (inferred.is_tensor() && inferred.element != declared.element)) {
    return InvalidArgument(StrCat("value '", name, "' is declared as ", ToString(declared),
                                  " but computed as ", ToString(inferred)));
  }
  if (!inferred.shape) return Status::Ok();
  SymbolicShape merged = *inferred.shape;
  const bool ranked = declared.shape && declared.shape->size() == merged.size();
  for (size_t i = 0; i < merged.size(); ++i) {
    merged[i] = MergedDimension(merged[i], ranked ? (*declared.shape)[i] : Dimension(), name, i);
  }
  declared.shape = std::move(merged);
  return Status::Ok();
}

}  // namespace

InferenceContext::InferenceContext(const Node& node, std::span<const ValueType> inputs,
                                   std::span<const Tensor* const> known,
                                   std::span<const ShapeValues* const> values)
    : node_(node), inputs_(inputs), known_(known), values_(values), outputs_(node.outputs.size()) {}

const ValueType& InferenceContext::input(size_t i) const {
  static const ValueType kAbsent;
  return HasInput(i) ? inputs_[i] : kAbsent;
}

const SymbolicShape* InferenceContext::shape(size_t i) const {
  const ValueType& type = input(i);
  return type.shape ? &*type.shape : nullptr;
}

const Tensor* InferenceContext::known(size_t i) const {
  return HasInput(i) && i < known_.size() ? known_[i] : nullptr;
}

std::optional<std::vector<int64_t>> InferenceContext::known_ints(size_t i) const {
  const Tensor* tensor = known(i);
  return tensor == nullptr ? std::nullopt : IntElements(*tensor);
}

std::optional<std::vector<ShapeValue>> InferenceContext::shape_values(size_t i) const {
  if (HasInput(i) && i < values_.size() && values_[i] != nullptr) return values_[i]->elements;
  const auto numbers = known_ints(i);
  if (!numbers) return std::nullopt;
  std::vector<ShapeValue> values;
  for (const int64_t number : *numbers) values.push_back({number, ""});
  return values;
}

void InferenceContext::SetType(size_t i, ValueType type) {
  if (i < outputs_.size()) outputs_[i] = std::move(type);
}

void InferenceContext::SetElement(size_t i, DataType element) {
  if (i >= outputs_.size()) return;
  outputs_[i].kind = ValueType::Kind::kTensor;
  outputs_[i].element = element;
}

void InferenceContext::SetShape(size_t i, SymbolicShape shape) {
  if (i < outputs_.size() && outputs_[i].is_tensor()) outputs_[i].shape = std::move(shape);
}

Status InferenceContext::Fail(std::string_view why) const {
  return InvalidArgument(StrCat(Describe(node_), ": ", why));
}

Result<std::vector<ValueType>> InferNode(const Node& node, std::span<const ValueType> inputs,
                                         std::span<const Tensor* const> known,
                                         std::span<const ShapeValues* const> values) {
  InferenceContext context(node, inputs, known, values);
  InferElementTypes(context);
  if (const InferenceFunction rule = FindInferenceRule(node.domain, node.op_type)) {
    const Status status = rule(context);
    if (!status.ok()) {
      const bool named = status.message().substr(0, 4) == "node";
      return named ? status : status.WithContext(Describe(node));
    }
  }
  return std::move(context.outputs());
}

namespace {

// What is known of the elements of small values while a graph's types are inferred.
class KnownElements {
 public:
  explicit KnownElements(size_t values) : tensors_(values), values_(values) {}

  static bool IsSmall(const Initializer& initializer) {
    return initializer.shape().ElementCount() <= kMaxRank * 2;
  }

  void Set(ValueId id, Tensor tensor) {
    const auto numbers = IntElements(tensor);
    if (numbers && tensor.shape().rank() <= 1) {
      ShapeValues values{tensor.shape().rank() == 0, {}};
      for (const int64_t number : *numbers) values.elements.push_back({number, ""});
      values_[static_cast<size_t>(id)] = std::move(values);
    }
    tensors_[static_cast<size_t>(id)] = std::move(tensor);
  }

  // Values of int64 that are numbers throughout become tensors.
  Status Set(ValueId id, ShapeValues values, DataType type) {
    std::vector<int64_t> numbers;
    for (const ShapeValue& value : values.elements) {
      if (value.number) numbers.push_back(*value.number);
    }
    if (type == DataType::kInt64 && numbers.size() == values.elements.size()) {
      const class Shape shape =
          values.scalar ? onnxd::Shape{} : onnxd::Shape{static_cast<int64_t>(numbers.size())};
      ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(type, shape));
      std::copy(numbers.begin(), numbers.end(), tensor.mutable_data<int64_t>());
      tensors_[static_cast<size_t>(id)] = std::move(tensor);
    }
    values_[static_cast<size_t>(id)] = std::move(values);
    return Status::Ok();
  }

  const Tensor* tensor(ValueId id) const {
    if (id == kNoValue || !tensors_[static_cast<size_t>(id)].defined()) return nullptr;
    return &tensors_[static_cast<size_t>(id)];
  }
  const ShapeValues* values(ValueId id) const {
    if (id == kNoValue || !values_[static_cast<size_t>(id)]) return nullptr;
    return &*values_[static_cast<size_t>(id)];
  }

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::optional<ShapeValues>> values_;
};

Status InferInitializers(Graph& graph, KnownElements& elements) {
  for (const auto& [id, initializer] : graph.initializers) {
    ValueType& type = graph.value(id).type;
    if (!type.known()) {
      type = ValueType::TensorOf(initializer.type(), ToSymbolic(initializer.shape()));
    } else if (type.is_tensor() && !type.shape) {
      type.shape = ToSymbolic(initializer.shape());
    }
    const bool number = initializer.type() == DataType::kInt64 ||
                        initializer.type() == DataType::kInt32 ||
                        initializer.type() == DataType::kFloat;
    if (number && KnownElements::IsSmall(initializer)) {
      ONNXD_ASSIGN_OR_RETURN(Tensor tensor, initializer.Materialize());
      elements.Set(id, std::move(tensor));
    }
  }
  return Status::Ok();
}

Status InferSubgraphs(const Graph& graph, Node& node, std::span<const ValueType> inputs) {
  for (auto& [name, attribute] : node.attributes.entries()) {
    auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute);
    if (subgraph == nullptr) continue;
    for (size_t i = 0; i < (*subgraph)->captures.size(); ++i) {
      const ValueId inner = (*subgraph)->captures[i];
      if (inner != kNoValue) (*subgraph)->value(inner).type = graph.value(node.captures[i]).type;
    }
    BindBodyInputs(node, inputs, **subgraph);
    ONNXD_RETURN_IF_ERROR(InferGraph(**subgraph).WithContext(Describe(node)));
  }
  return Status::Ok();
}

}  // namespace

Status InferGraph(Graph& graph, std::map<ValueId, Tensor>* computed) {
  KnownElements elements(graph.value_count());
  ONNXD_RETURN_IF_ERROR(InferInitializers(graph, elements));
  for (Node& node : graph.nodes) {
    std::vector<ValueType> inputs;
    std::vector<const Tensor*> known;
    std::vector<const ShapeValues*> values;
    for (const ValueId id : node.inputs) {
      inputs.push_back(id == kNoValue ? ValueType{} : graph.value(id).type);
      known.push_back(elements.tensor(id));
      values.push_back(elements.values(id));
    }
    ONNXD_RETURN_IF_ERROR(InferSubgraphs(graph, node, inputs));
    ONNXD_ASSIGN_OR_RETURN(const auto outputs, InferNode(node, inputs, known, values));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      if (id == kNoValue) continue;
      ValueInfo& info = graph.value(id);
      const Status merged = Merge(outputs[i], info.type, info.name);
      if (!merged.ok()) return merged.WithContext(Describe(node));
    }
    const ValueId out = node.output(0);
    if (out == kNoValue) continue;
    const Initializer* constant =
        node.Is("Constant") ? node.attributes.TensorValue("value") : nullptr;
    if (constant != nullptr && constant->type() != DataType::kString &&
        KnownElements::IsSmall(*constant)) {
      ONNXD_ASSIGN_OR_RETURN(Tensor tensor, constant->Materialize());
      elements.Set(out, std::move(tensor));
    } else if (auto propagated = PropagateShapeValues(node, inputs, values)) {
      ONNXD_RETURN_IF_ERROR(
          elements.Set(out, std::move(*propagated), graph.value(out).type.element));
      if (computed != nullptr && elements.tensor(out) != nullptr) {
        computed->emplace(out, *elements.tensor(out));
      }
    }
  }
  return Status::Ok();
}

std::optional<std::vector<int64_t>> IntElements(const Tensor& tensor) {
  if (tensor.type() == DataType::kInt64) {
    const auto elements = tensor.elements<int64_t>();
    return std::vector<int64_t>(elements.begin(), elements.end());
  }
  if (tensor.type() == DataType::kInt32) {
    const auto elements = tensor.elements<int32_t>();
    return std::vector<int64_t>(elements.begin(), elements.end());
  }
  return std::nullopt;
}

}  // namespace onnxd
