// What an ONNX file says, names still names: the stage between the wire and the Graph.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/graph/attribute.h"
#include "runtime/graph/initializer.h"
#include "runtime/tensor/value.h"

namespace onnxd {

struct ParsedGraph;

using ParsedGraphPtr = std::shared_ptr<ParsedGraph>;

// Like Attribute, with graphs still parsed; or a reference to an attribute of the enclosing
// function (ref_attr_name).
struct ParsedAttribute {
  std::string name;
  std::string reference;  // ref_attr_name; then `value` is meaningless
  std::variant<Attribute, ParsedGraphPtr, std::vector<ParsedGraphPtr>> value;
};

using OpsetImports = std::map<std::string, int64_t>;

struct ParsedNode {
  std::string name, domain, op_type, overload;
  std::vector<std::string> inputs, outputs;
  std::vector<ParsedAttribute> attributes;
  std::shared_ptr<const OpsetImports> opsets;  // set for nodes inlined from a function
};

struct ParsedValueInfo {
  std::string name;
  ValueType type;
};

struct ParsedGraph {
  std::string name;
  std::vector<ParsedNode> nodes;
  std::vector<std::pair<std::string, Initializer>> initializers;
  std::vector<ParsedValueInfo> inputs, outputs, value_infos;
};

struct ParsedFunction {
  std::string name, domain, overload;
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> attribute_names;  // without default
  std::vector<ParsedAttribute> attribute_defaults;
  std::vector<ParsedNode> nodes;
  OpsetImports opsets;
};

struct ParsedModel {
  int64_t ir_version = 0;
  int64_t model_version = 0;
  std::string producer_name, producer_version, domain;
  OpsetImports opsets;
  std::vector<std::pair<std::string, std::string>> metadata;
  ParsedGraph graph;
  bool has_graph = false;
  std::vector<ParsedFunction> functions;
};

}  // namespace onnxd
