// Model: a graph with the facts its file states about it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/graph/graph.h"

namespace onnxd {

struct Model {
  int64_t ir_version = 0;
  std::map<std::string, int64_t> opsets;  // by domain, "" is ai.onnx
  std::string producer_name;
  std::string producer_version;
  std::string domain;
  int64_t model_version = 0;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> external_files;  // with weights, relative to the model's folder
  Graph graph;
};

}  // namespace onnxd
