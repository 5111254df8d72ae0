#include "runtime/format/model_writer.h"

#include <bit>

#include "runtime/base/str_cat.h"
#include "runtime/format/wire_writer.h"

namespace onnxd {
namespace {

void WriteType(WireWriter& writer, const ValueType& type) {
  const auto tensor = [&](uint32_t field) {
    writer.Message(field, [&](WireWriter& inner) {
      inner.Varint(1, static_cast<uint64_t>(type.element));
      if (!type.shape) return;
      inner.Message(2, [&](WireWriter& shape) {
        for (const Dimension& dimension : *type.shape) {
          shape.Message(1, [&](WireWriter& out) {
            if (dimension.known()) {
              out.Varint(1, static_cast<uint64_t>(dimension.value));
            } else if (!dimension.symbol.empty() && !dimension.unnamed()) {
              out.Bytes(2, dimension.symbol);
            }
          });
        }
      });
    });
  };
  const auto container = [&](uint32_t field) {
    writer.Message(field, [&](WireWriter& outer) {
      const bool map = type.kind == ValueType::Kind::kMap;
      if (map) outer.Varint(1, static_cast<uint64_t>(type.element));
      if (type.inner) {
        outer.Message(map ? 2 : 1, [&](WireWriter& inner) { WriteType(inner, *type.inner); });
      }
    });
  };
  switch (type.kind) {
    case ValueType::Kind::kTensor:
      return tensor(1);
    case ValueType::Kind::kSparseTensor:
      return tensor(8);
    case ValueType::Kind::kSequence:
      return container(4);
    case ValueType::Kind::kMap:
      return container(5);
    case ValueType::Kind::kOptional:
      return container(9);
    case ValueType::Kind::kUnknown:
      return;
  }
}

void WriteValueInfo(WireWriter& writer, uint32_t field, const ValueInfo& info) {
  writer.Message(field, [&](WireWriter& out) {
    out.Bytes(1, info.name);
    if (info.type.known()) out.Message(2, [&](WireWriter& type) { WriteType(type, info.type); });
  });
}

class Writer {
 public:
  // `outer` gives the names of the captures of a subgraph.
  Status WriteGraph(WireWriter& out, const Graph& graph, const std::vector<std::string>& outer) {
    std::vector<std::string> names;
    for (size_t i = 0; i < graph.value_count(); ++i) {
      names.push_back(graph.value(static_cast<ValueId>(i)).name);
    }
    for (size_t i = 0; i < graph.captures.size(); ++i) {
      if (graph.captures[i] != kNoValue) names[static_cast<size_t>(graph.captures[i])] = outer[i];
    }
    for (const Node& node : graph.nodes) {
      WireWriter inner;
      ONNXD_RETURN_IF_ERROR(WriteNode(inner, node, names));
      out.Bytes(1, std::move(inner).Take());
    }
    out.Bytes(2, graph.name.empty() ? "graph" : graph.name);
    for (const auto& [id, initializer] : graph.initializers) {
      ONNXD_ASSIGN_OR_RETURN(const Tensor tensor, initializer.Materialize());
      const std::string& tensor_name = names[static_cast<size_t>(id)];
      out.Message(5, [&](WireWriter& inner) { WriteTensor(inner, tensor_name, tensor); });
    }
    for (const ValueId id : graph.inputs) WriteValueInfo(out, 11, graph.value(id));
    for (const ValueId id : graph.outputs) {
      WriteValueInfo(out, 12, {names[static_cast<size_t>(id)], graph.value(id).type});
    }
    return Status::Ok();
  }

 private:
  Status WriteNode(WireWriter& out, const Node& node, const std::vector<std::string>& names) {
    const auto name_of = [&](ValueId id) {
      return id == kNoValue ? std::string() : names[static_cast<size_t>(id)];
    };
    for (const ValueId id : node.inputs) out.Bytes(1, name_of(id));
    for (const ValueId id : node.outputs) out.Bytes(2, name_of(id));
    if (!node.name.empty()) out.Bytes(3, node.name);
    out.Bytes(4, node.op_type);
    if (!node.domain.empty()) out.Bytes(7, node.domain);
    std::vector<std::string> captures;
    for (const ValueId id : node.captures) captures.push_back(name_of(id));
    for (const auto& [name, attribute] : node.attributes.entries()) {
      if (std::holds_alternative<FusedGraph>(attribute)) {
        return Unimplemented(StrCat(Describe(node), " has no form in ONNX"));
      }
      WireWriter inner;
      inner.Bytes(1, name);
      ONNXD_RETURN_IF_ERROR(WriteAttribute(inner, attribute, captures));
      out.Bytes(5, std::move(inner).Take());
    }
    return Status::Ok();
  }

  Status WriteAttribute(WireWriter& out, const Attribute& attribute,
                        const std::vector<std::string>& captures) {
    static constexpr int kTypes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13};
    out.Varint(20, static_cast<uint64_t>(kTypes[attribute.index()]));
    const auto tensor = [&](uint32_t field, const Initializer& initializer) -> Status {
      ONNXD_ASSIGN_OR_RETURN(const Tensor value, initializer.Materialize());
      out.Message(field, [&](WireWriter& inner) { WriteTensor(inner, "", value); });
      return Status::Ok();
    };
    const auto graph = [&](uint32_t field, const Graph& subgraph) -> Status {
      WireWriter inner;
      ONNXD_RETURN_IF_ERROR(WriteGraph(inner, subgraph, captures));
      out.Bytes(field, std::move(inner).Take());
      return Status::Ok();
    };
    if (const auto* f = std::get_if<float>(&attribute)) {
      out.Fixed32(2, std::bit_cast<uint32_t>(*f));
    } else if (const auto* i = std::get_if<int64_t>(&attribute)) {
      out.Varint(3, static_cast<uint64_t>(*i));
    } else if (const auto* s = std::get_if<std::string>(&attribute)) {
      out.Bytes(4, *s);
    } else if (const auto* t = std::get_if<Initializer>(&attribute)) {
      return tensor(5, *t);
    } else if (const auto* g = std::get_if<std::shared_ptr<Graph>>(&attribute)) {
      return graph(6, **g);
    } else if (const auto* floats = std::get_if<std::vector<float>>(&attribute)) {
      for (const float value : *floats) out.Fixed32(7, std::bit_cast<uint32_t>(value));
    } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&attribute)) {
      for (const int64_t value : *ints) out.Varint(8, static_cast<uint64_t>(value));
    } else if (const auto* strings = std::get_if<std::vector<std::string>>(&attribute)) {
      for (const std::string& value : *strings) out.Bytes(9, value);
    } else if (const auto* tensors = std::get_if<std::vector<Initializer>>(&attribute)) {
      for (const Initializer& value : *tensors) ONNXD_RETURN_IF_ERROR(tensor(10, value));
    } else if (const auto* graphs = std::get_if<std::vector<std::shared_ptr<Graph>>>(&attribute)) {
      for (const auto& value : *graphs) ONNXD_RETURN_IF_ERROR(graph(11, *value));
    } else if (const auto* type = std::get_if<ValueType>(&attribute)) {
      out.Message(14, [&](WireWriter& inner) { WriteType(inner, *type); });
    }
    return Status::Ok();
  }
};

}  // namespace

Result<std::string> WriteModel(const Model& model) {
  WireWriter out;
  out.Varint(1, static_cast<uint64_t>(model.ir_version));
  out.Bytes(2, model.producer_name);
  out.Bytes(3, model.producer_version);
  out.Varint(5, static_cast<uint64_t>(model.model_version));
  WireWriter graph;
  ONNXD_RETURN_IF_ERROR(Writer().WriteGraph(graph, model.graph, {}));
  out.Bytes(7, std::move(graph).Take());
  for (const auto& opset : model.opsets) {
    out.Message(8, [&](WireWriter& inner) {
      inner.Bytes(1, opset.first);
      inner.Varint(2, static_cast<uint64_t>(opset.second));
    });
  }
  for (const auto& entry : model.metadata) {
    out.Message(14, [&](WireWriter& inner) {
      inner.Bytes(1, entry.first);
      inner.Bytes(2, entry.second);
    });
  }
  std::string bytes = std::move(out).Take();
  if (bytes.size() > 0x7fffffff) return InvalidArgument("the model exceeds protobuf's 2 GB");
  return bytes;
}

}  // namespace onnxd
