#include "runtime/format/model_parser.h"

#include <bit>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr int kMaxTypeDepth = 16;

// Calls handle(field) for each field of the message that ends at `end`; handle returns a Status
// and must consume the field.
template <typename Handle>
Status ForEachField(WireReader& reader, uint64_t end, Handle handle) {
  while (!reader.AtEnd(end)) {
    ONNXD_ASSIGN_OR_RETURN(const WireField field, reader.NextField(end));
    ONNXD_RETURN_IF_ERROR(handle(field));
  }
  return Status::Ok();
}

Status ReadText(WireReader& reader, WireField field, uint64_t end, std::string& out) {
  ONNXD_RETURN_IF_ERROR(reader.Expect(field, WireType::kBytes));
  ONNXD_ASSIGN_OR_RETURN(out, reader.Text(end));
  return Status::Ok();
}

Status AppendText(WireReader& reader, WireField field, uint64_t end,
                  std::vector<std::string>& out) {
  return ReadText(reader, field, end, out.emplace_back());
}

Status ReadInt(WireReader& reader, WireField field, uint64_t end, int64_t& out) {
  ONNXD_RETURN_IF_ERROR(reader.Expect(field, WireType::kVarint));
  ONNXD_ASSIGN_OR_RETURN(const uint64_t value, reader.Varint(end));
  out = static_cast<int64_t>(value);
  return Status::Ok();
}

// Enters a nested message and calls parse(stop).
template <typename Parse>
Status ReadMessage(WireReader& reader, WireField field, uint64_t end, Parse parse) {
  ONNXD_RETURN_IF_ERROR(reader.Expect(field, WireType::kBytes));
  ONNXD_ASSIGN_OR_RETURN(const uint64_t stop, reader.Enter(end));
  ONNXD_RETURN_IF_ERROR(reader.budget().Charge(64));
  return parse(stop);
}

Status ParseDimension(WireReader& reader, uint64_t end, Dimension& dimension) {
  return ForEachField(reader, end, [&](WireField field) -> Status {
    if (field.number == 1) {
      int64_t value = -1;
      ONNXD_RETURN_IF_ERROR(ReadInt(reader, field, end, value));
      dimension.value = value < 0 ? -1 : value;  // old files say -1 for "unknown"
      return Status::Ok();
    }
    if (field.number == 2) return ReadText(reader, field, end, dimension.symbol);
    return reader.Skip(field, end);
  });
}

Status ParseShape(WireReader& reader, uint64_t end, SymbolicShape& shape) {
  return ForEachField(reader, end, [&](WireField field) -> Status {
    if (field.number != 1) return reader.Skip(field, end);
    if (shape.size() >= static_cast<size_t>(kMaxRank)) {
      return InvalidArgument(StrCat("a shape has more than ", kMaxRank, " dimensions"));
    }
    return ReadMessage(reader, field, end, [&](uint64_t stop) {
      return ParseDimension(reader, stop, shape.emplace_back());
    });
  });
}

Result<DataType> ReadElementType(WireReader& reader, WireField field, uint64_t end) {
  int64_t number = 0;
  ONNXD_RETURN_IF_ERROR(ReadInt(reader, field, end, number));
  if (!IsDataType(number)) return InvalidArgument(StrCat("unknown data type ", number));
  return static_cast<DataType>(number);
}

Result<ValueType> ParseTensorType(WireReader& reader, uint64_t end, ValueType::Kind kind) {
  ValueType type;
  type.kind = kind;
  ONNXD_RETURN_IF_ERROR(ForEachField(reader, end, [&](WireField field) -> Status {
    if (field.number == 1) {
      ONNXD_ASSIGN_OR_RETURN(type.element, ReadElementType(reader, field, end));
      return Status::Ok();
    }
    if (field.number != 2) return reader.Skip(field, end);
    type.shape.emplace();
    return ReadMessage(reader, field, end,
                       [&](uint64_t stop) { return ParseShape(reader, stop, *type.shape); });
  }));
  if (type.element == DataType::kUndefined) return ValueType{};
  return type;
}

Result<ValueType> ParseContainerType(WireReader& reader, uint64_t end, ValueType::Kind kind,
                                     int depth) {
  ValueType type;
  type.kind = kind;
  const uint32_t inner_number = kind == ValueType::Kind::kMap ? 2 : 1;
  ONNXD_RETURN_IF_ERROR(ForEachField(reader, end, [&](WireField field) -> Status {
    if (field.number == inner_number) {
      return ReadMessage(reader, field, end, [&](uint64_t stop) -> Status {
        ONNXD_ASSIGN_OR_RETURN(ValueType inner, ParseType(reader, stop, depth + 1));
        type.inner = std::make_shared<const ValueType>(std::move(inner));
        return Status::Ok();
      });
    }
    if (kind == ValueType::Kind::kMap && field.number == 1) {
      ONNXD_ASSIGN_OR_RETURN(type.element, ReadElementType(reader, field, end));
      return Status::Ok();
    }
    return reader.Skip(field, end);
  }));
  return type;
}

class Parser {
 public:
  Parser(WireReader& reader, ExternalData& external) : reader_(reader), external_(external) {}

  Status ParseModelFields(uint64_t end, ParsedModel& model);

 private:
  Status ParseGraph(uint64_t end, ParsedGraph& graph, int depth);
  Status ParseNode(uint64_t end, ParsedNode& node, int depth);
  Status ParseAttribute(uint64_t end, ParsedAttribute& attribute, int depth);
  Status ParseFunction(uint64_t end, ParsedFunction& function);
  Status ParseValueInfo(uint64_t end, ParsedValueInfo& info);
  Status ParseOpset(uint64_t end, OpsetImports& opsets);

  template <typename T>
  Status ParseValueInfos(WireField field, uint64_t end, T& infos) {
    return ReadMessage(reader_, field, end,
                       [&](uint64_t stop) { return ParseValueInfo(stop, infos.emplace_back()); });
  }

  WireReader& reader_;
  ExternalData& external_;
};

Status Parser::ParseValueInfo(uint64_t end, ParsedValueInfo& info) {
  ONNXD_RETURN_IF_ERROR(reader_.budget().Charge(192));
  return ForEachField(reader_, end, [&](WireField field) -> Status {
    if (field.number == 1) return ReadText(reader_, field, end, info.name);
    if (field.number != 2) return reader_.Skip(field, end);
    return ReadMessage(reader_, field, end, [&](uint64_t stop) -> Status {
      auto type = ParseType(reader_, stop);
      if (!type.ok()) return type.status().WithContext(StrCat("type of '", info.name, "'"));
      info.type = std::move(*type);
      return Status::Ok();
    });
  });
}

Status Parser::ParseOpset(uint64_t end, OpsetImports& opsets) {
  std::string domain;
  int64_t version = 0;
  ONNXD_RETURN_IF_ERROR(ForEachField(reader_, end, [&](WireField field) -> Status {
    if (field.number == 1) return ReadText(reader_, field, end, domain);
    if (field.number == 2) return ReadInt(reader_, field, end, version);
    return reader_.Skip(field, end);
  }));
  if (domain == "ai.onnx") domain.clear();
  const auto [entry, added] = opsets.emplace(domain, version);
  if (!added && entry->second != version) {
    return InvalidArgument(StrCat("opset_import lists domain '", domain, "' twice, as version ",
                                  entry->second, " and ", version));
  }
  return Status::Ok();
}

// Attribute fields by number; several may be present, `type` says which counts.
struct AttributeFields {
  float f = 0;
  int64_t i = 0;
  int64_t type = 0;
  std::string s;
  Initializer t;
  ParsedGraphPtr g;
  std::vector<uint32_t> floats;
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
  std::vector<Initializer> tensors;
  std::vector<ParsedGraphPtr> graphs;
  ValueType tp;
  int last_seen = 0;
};

Status StoreAttribute(AttributeFields&& fields, ParsedAttribute& attribute) {
  // Files of IR version 1 carry no type: the field that is present decides.
  static constexpr int kTypeOfField[] = {0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 13};
  if (fields.type == 0 && fields.last_seen > 0 && fields.last_seen <= 14) {
    fields.type = kTypeOfField[fields.last_seen];
  }
  switch (fields.type) {
    case 1:
      attribute.value = Attribute(fields.f);
      break;
    case 2:
      attribute.value = Attribute(fields.i);
      break;
    case 3:
      attribute.value = Attribute(std::move(fields.s));
      break;
    case 4:
    case 11:
      if (!fields.t.defined()) return InvalidArgument("a tensor attribute without a tensor");
      attribute.value = Attribute(std::move(fields.t));
      break;
    case 5:
      if (fields.g == nullptr) return InvalidArgument("a graph attribute without a graph");
      attribute.value = std::move(fields.g);
      break;
    case 6: {
      std::vector<float> floats;
      for (const uint32_t bits : fields.floats) floats.push_back(std::bit_cast<float>(bits));
      attribute.value = Attribute(std::move(floats));
      break;
    }
    case 7:
      attribute.value = Attribute(std::move(fields.ints));
      break;
    case 8:
      attribute.value = Attribute(std::move(fields.strings));
      break;
    case 9:
    case 12:
      attribute.value = Attribute(std::move(fields.tensors));
      break;
    case 10:
      attribute.value = std::move(fields.graphs);
      break;
    case 13:
      attribute.value = Attribute(std::move(fields.tp));
      break;
    default:
      return InvalidArgument(StrCat("unknown attribute type ", fields.type));
  }
  return Status::Ok();
}

Status Parser::ParseAttribute(uint64_t end, ParsedAttribute& attribute, int depth) {
  ONNXD_RETURN_IF_ERROR(reader_.budget().Charge(256));
  AttributeFields fields;
  const Status status = ForEachField(reader_, end, [&](WireField field) -> Status {
    if (field.number >= 2 && field.number <= 14 && field.number != 13) {
      fields.last_seen = static_cast<int>(field.number);
    }
    const auto tensor = [&](bool sparse, auto store) {
      return ReadMessage(reader_, field, end, [&](uint64_t stop) -> Status {
        ONNXD_ASSIGN_OR_RETURN(auto named, sparse ? ReadSparseTensor(reader_, stop, external_)
                                                  : ReadTensor(reader_, stop, external_));
        store(std::move(named.second));
        return Status::Ok();
      });
    };
    const auto graph = [&](ParsedGraphPtr& out) {
      out = std::make_shared<ParsedGraph>();
      return ReadMessage(reader_, field, end,
                         [&](uint64_t stop) { return ParseGraph(stop, *out, depth + 1); });
    };
    switch (field.number) {
      case 1:
        return ReadText(reader_, field, end, attribute.name);
      case 2: {
        ONNXD_RETURN_IF_ERROR(reader_.Expect(field, WireType::kFixed32));
        ONNXD_ASSIGN_OR_RETURN(const uint32_t bits, reader_.Fixed32(end));
        fields.f = std::bit_cast<float>(bits);
        return Status::Ok();
      }
      case 3:
        return ReadInt(reader_, field, end, fields.i);
      case 4:
        return ReadText(reader_, field, end, fields.s);
      case 5:
      case 22:
        return tensor(field.number == 22, [&](Initializer t) { fields.t = std::move(t); });
      case 6:
        return graph(fields.g);
      case 7:
        return reader_.Fixed32s(field, end, fields.floats);
      case 8:
        return reader_.Varints(field, end, fields.ints);
      case 9:
        return AppendText(reader_, field, end, fields.strings);
      case 10:
      case 23:
        return tensor(field.number == 23,
                      [&](Initializer t) { fields.tensors.push_back(std::move(t)); });
      case 11:
        return graph(fields.graphs.emplace_back());
      case 14:
        return ReadMessage(reader_, field, end, [&](uint64_t stop) -> Status {
          ONNXD_ASSIGN_OR_RETURN(fields.tp, ParseType(reader_, stop));
          return Status::Ok();
        });
      case 20:
        return ReadInt(reader_, field, end, fields.type);
      case 21:
        return ReadText(reader_, field, end, attribute.reference);
      default:
        return reader_.Skip(field, end);
    }
  });
  ONNXD_RETURN_IF_ERROR(status.WithContext(StrCat("attribute '", attribute.name, "'")));
  if (!attribute.reference.empty()) return Status::Ok();
  return StoreAttribute(std::move(fields), attribute)
      .WithContext(StrCat("attribute '", attribute.name, "'"));
}

Status Parser::ParseNode(uint64_t end, ParsedNode& node, int depth) {
  ONNXD_RETURN_IF_ERROR(reader_.budget().Charge(512));
  const Status status = ForEachField(reader_, end, [&](WireField field) -> Status {
    switch (field.number) {
      case 1:
        return AppendText(reader_, field, end, node.inputs);
      case 2:
        return AppendText(reader_, field, end, node.outputs);
      case 3:
        return ReadText(reader_, field, end, node.name);
      case 4:
        return ReadText(reader_, field, end, node.op_type);
      case 5:
        return ReadMessage(reader_, field, end, [&](uint64_t stop) {
          return ParseAttribute(stop, node.attributes.emplace_back(), depth);
        });
      case 7:
        return ReadText(reader_, field, end, node.domain);
      case 8:
        return ReadText(reader_, field, end, node.overload);
      default:
        return reader_.Skip(field, end);
    }
  });
  if (node.domain == "ai.onnx") node.domain.clear();
  // Another name of onnxruntime-extensions' domain.
  if (node.domain == "com.microsoft.extensions") node.domain = "ai.onnx.contrib";
  return status.WithContext(StrCat("node '", node.name, "' (", node.op_type, ")"));
}

Status Parser::ParseGraph(uint64_t end, ParsedGraph& graph, int depth) {
  if (depth > kMaxSubgraphDepth) {
    return InvalidArgument(StrCat("subgraphs are nested deeper than ", kMaxSubgraphDepth));
  }
  return ForEachField(reader_, end, [&](WireField field) -> Status {
    switch (field.number) {
      case 1:
        return ReadMessage(reader_, field, end, [&](uint64_t stop) {
          return ParseNode(stop, graph.nodes.emplace_back(), depth);
        });
      case 2:
        return ReadText(reader_, field, end, graph.name);
      case 5:
      case 15:
        return ReadMessage(reader_, field, end, [&](uint64_t stop) -> Status {
          ONNXD_ASSIGN_OR_RETURN(auto named, field.number == 5
                                                 ? ReadTensor(reader_, stop, external_)
                                                 : ReadSparseTensor(reader_, stop, external_));
          graph.initializers.push_back(std::move(named));
          return Status::Ok();
        });
      case 11:
        return ParseValueInfos(field, end, graph.inputs);
      case 12:
        return ParseValueInfos(field, end, graph.outputs);
      case 13:
        return ParseValueInfos(field, end, graph.value_infos);
      default:
        return reader_.Skip(field, end);
    }
  });
}

Status Parser::ParseFunction(uint64_t end, ParsedFunction& function) {
  ONNXD_RETURN_IF_ERROR(reader_.budget().Charge(512));
  const Status status = ForEachField(reader_, end, [&](WireField field) -> Status {
    switch (field.number) {
      case 1:
        return ReadText(reader_, field, end, function.name);
      case 4:
        return AppendText(reader_, field, end, function.inputs);
      case 5:
        return AppendText(reader_, field, end, function.outputs);
      case 6:
        return AppendText(reader_, field, end, function.attribute_names);
      case 7:
        return ReadMessage(reader_, field, end, [&](uint64_t stop) {
          return ParseNode(stop, function.nodes.emplace_back(), 1);
        });
      case 9:
        return ReadMessage(reader_, field, end,
                           [&](uint64_t stop) { return ParseOpset(stop, function.opsets); });
      case 10:
        return ReadText(reader_, field, end, function.domain);
      case 11:
        return ReadMessage(reader_, field, end, [&](uint64_t stop) {
          return ParseAttribute(stop, function.attribute_defaults.emplace_back(), 1);
        });
      case 13:
        return ReadText(reader_, field, end, function.overload);
      default:
        return reader_.Skip(field, end);
    }
  });
  return status.WithContext(StrCat("function '", function.domain, "::", function.name, "'"));
}

Status Parser::ParseModelFields(uint64_t end, ParsedModel& model) {
  return ForEachField(reader_, end, [&](WireField field) -> Status {
    switch (field.number) {
      case 1:
        return ReadInt(reader_, field, end, model.ir_version);
      case 2:
        return ReadText(reader_, field, end, model.producer_name);
      case 3:
        return ReadText(reader_, field, end, model.producer_version);
      case 4:
        return ReadText(reader_, field, end, model.domain);
      case 5:
        return ReadInt(reader_, field, end, model.model_version);
      case 7:
        if (model.has_graph) return InvalidArgument("the model has two graphs");
        model.has_graph = true;
        return ReadMessage(reader_, field, end,
                           [&](uint64_t stop) { return ParseGraph(stop, model.graph, 0); });
      case 8:
        return ReadMessage(reader_, field, end,
                           [&](uint64_t stop) { return ParseOpset(stop, model.opsets); });
      case 14:
        return ReadMessage(reader_, field, end, [&](uint64_t stop) -> Status {
          auto& metadata = model.metadata.emplace_back();
          return ForEachField(reader_, stop, [&](WireField entry) -> Status {
            if (entry.number == 1) return ReadText(reader_, entry, stop, metadata.first);
            if (entry.number == 2) return ReadText(reader_, entry, stop, metadata.second);
            return reader_.Skip(entry, stop);
          });
        });
      case 25:
        return ReadMessage(reader_, field, end, [&](uint64_t stop) {
          return ParseFunction(stop, model.functions.emplace_back());
        });
      default:
        return reader_.Skip(field, end);
    }
  });
}

}  // namespace

Result<ValueType> ParseType(WireReader& reader, uint64_t end, int depth) {
  if (depth > kMaxTypeDepth) return InvalidArgument("a type is nested too deep");
  ValueType type;
  ONNXD_RETURN_IF_ERROR(ForEachField(reader, end, [&](WireField field) -> Status {
    const auto container = [&](ValueType::Kind kind) {
      return ReadMessage(reader, field, end, [&](uint64_t stop) -> Status {
        ONNXD_ASSIGN_OR_RETURN(type, ParseContainerType(reader, stop, kind, depth));
        return Status::Ok();
      });
    };
    const auto tensor = [&](ValueType::Kind kind) {
      return ReadMessage(reader, field, end, [&](uint64_t stop) -> Status {
        ONNXD_ASSIGN_OR_RETURN(type, ParseTensorType(reader, stop, kind));
        return Status::Ok();
      });
    };
    switch (field.number) {
      case 1:
        return tensor(ValueType::Kind::kTensor);
      case 4:
        return container(ValueType::Kind::kSequence);
      case 5:
        return container(ValueType::Kind::kMap);
      case 8:
        return tensor(ValueType::Kind::kSparseTensor);
      case 9:
        return container(ValueType::Kind::kOptional);
      default:
        return reader.Skip(field, end);
    }
  }));
  return type;
}

Result<ParsedModel> ParseModel(WireReader& reader, ExternalData& external) {
  ParsedModel model;
  ONNXD_RETURN_IF_ERROR(Parser(reader, external).ParseModelFields(reader.size(), model));
  if (!model.has_graph) {
    return InvalidArgument("not an ONNX model: it has no graph");
  }
  return model;
}

}  // namespace onnxd
