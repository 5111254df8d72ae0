// Mutation: turns a valid model and its inputs into ones that no exporter would write.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "runtime/graph/model.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// One source of choices; the same seed gives the same mutation.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // Forgets every declared shape, so that what comes is judged by operators alone; then changes one
  // to three attributes, operands, types, input shapes or input elements. Returns what was changed.
  std::string Mutate(Model& model, std::vector<Value>& inputs);

 private:
  size_t Below(size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
  }
  // The graph, or one of the subgraphs below it.
  Graph& AnyGraph(Graph& graph);
  std::string MutateAttribute(Graph& graph);
  std::string MutateOperand(Graph& graph);
  std::string MutateType(Graph& main, std::vector<Value>& inputs);
  std::string MutateShape(std::vector<Value>& inputs);
  std::string MutateElements(std::vector<Value>& inputs);
  std::vector<int64_t> OtherDims(std::vector<int64_t> dims);
  int64_t OtherInteger();
  double OtherFloat();
  std::string OtherString();
  void Change(Attribute& attribute);
  Tensor* AnyTensor(std::vector<Value>& inputs);

  std::mt19937_64 random_;
};

}  // namespace onnxd
