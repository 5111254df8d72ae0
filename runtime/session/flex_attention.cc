// ai.onnx.preview FlexAttention-1: attention whose scores and probabilities pass through subgraphs.
// A step of the session, as only the session runs subgraphs; plain loops, for an operator that is
// still a preview.
#include <algorithm>
#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/session/control_flow_nodes.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

struct Sizes {
  int64_t batch, heads, key_heads, queries, keys, head, value;
};

Result<Sizes> SizesOf(std::span<const Value> inputs) {
  for (size_t i = 0; i < 3; ++i) {
    if (!inputs[i].is_tensor() || inputs[i].tensor().shape().rank() != 4) {
      return InvalidArgument("Q, K and V must be tensors of rank 4");
    }
  }
  const Shape& q = inputs[0].tensor().shape();
  const Shape& k = inputs[1].tensor().shape();
  const Shape& v = inputs[2].tensor().shape();
  const Sizes z{q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
  const bool fits = k == Shape{z.batch, z.key_heads, z.keys, z.head} &&
                    v == Shape{z.batch, z.key_heads, z.keys, z.value} && z.key_heads > 0 &&
                    z.heads % z.key_heads == 0;
  if (fits) return z;
  return InvalidArgument(
      StrCat("Q ", q.ToString(), ", K ", k.ToString(), " and V ", v.ToString(), " do not match"));
}

void Softmax(double* row, int64_t n) {
  const double largest = *std::max_element(row, row + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += row[i] = std::exp(row[i] - largest);
  for (int64_t i = 0; i < n; ++i) row[i] /= sum;
}

class FlexAttention : public ControlFlow {
 public:
  FlexAttention(const Node& node, std::optional<Body> scores, std::optional<Body> probabilities)
      : scores_(std::move(scores)),
        probabilities_(std::move(probabilities)),
        scale_(node.attributes.Float("scale", 0)),
        precision_(static_cast<DataType>(node.attributes.Int("softmax_precision", 0))),
        name_(Describe(node)) {}

  Result<std::vector<Value>> Run(std::span<const Value> inputs, std::span<const Value> captures,
                                 const RunOptions& options) const override {
    auto results = Compute(inputs, captures, options);
    if (!results.ok()) return results.status().WithContext(name_);
    return results;
  }

 private:
  Result<std::vector<Value>> Compute(std::span<const Value> inputs, std::span<const Value> captures,
                                     const RunOptions& options) const {
    ONNXD_ASSIGN_OR_RETURN(const Sizes z, SizesOf(inputs));
    const DataType type = inputs[0].tensor().type();
    Tensor operands[3];
    for (size_t i = 0; i < 3; ++i) {
      ONNXD_ASSIGN_OR_RETURN(operands[i], Converted(inputs[i].tensor(), DataType::kDouble));
    }
    ONNXD_ASSIGN_OR_RETURN(
        Tensor scores,
        Tensor::Create(DataType::kDouble, Shape{z.batch, z.heads, z.queries, z.keys}));
    Multiply(z, operands[0].data<double>(), operands[1].data<double>(),
             scores.mutable_data<double>());
    ONNXD_ASSIGN_OR_RETURN(scores, Modify(scores_, std::move(scores), type, captures, options));
    for (int64_t row = 0; z.keys > 0 && row < z.batch * z.heads * z.queries; ++row) {
      Softmax(scores.mutable_data<double>() + row * z.keys, z.keys);
    }
    ONNXD_ASSIGN_OR_RETURN(scores,
                           Modify(probabilities_, std::move(scores), type, captures, options));
    ONNXD_ASSIGN_OR_RETURN(
        Tensor y, Tensor::Create(DataType::kDouble, Shape{z.batch, z.heads, z.queries, z.value}));
    Combine(z, scores.data<double>(), operands[2].data<double>(), y.mutable_data<double>());
    ONNXD_ASSIGN_OR_RETURN(y, Converted(y, type));
    return std::vector<Value>{std::move(y)};
  }

  void Multiply(const Sizes& z, const double* q, const double* k, double* scores) const {
    const double scale =
        scale_ != 0 ? static_cast<double>(scale_) : 1 / std::sqrt(static_cast<double>(z.head));
    const int64_t share = z.heads / z.key_heads;
    for (int64_t lane = 0; lane < z.batch * z.heads; ++lane) {
      const int64_t key_lane = lane / z.heads * z.key_heads + lane % z.heads / share;
      for (int64_t i = 0; i < z.queries; ++i) {
        for (int64_t j = 0; j < z.keys; ++j) {
          double sum = 0;
          for (int64_t d = 0; d < z.head; ++d) {
            sum += q[(lane * z.queries + i) * z.head + d] * k[(key_lane * z.keys + j) * z.head + d];
          }
          scores[(lane * z.queries + i) * z.keys + j] = sum * scale;
        }
      }
    }
  }

  static void Combine(const Sizes& z, const double* p, const double* v, double* y) {
    const int64_t share = z.heads / z.key_heads;
    for (int64_t lane = 0; lane < z.batch * z.heads; ++lane) {
      const int64_t key_lane = lane / z.heads * z.key_heads + lane % z.heads / share;
      for (int64_t i = 0; i < z.queries; ++i) {
        for (int64_t d = 0; d < z.value; ++d) {
          double sum = 0;
          for (int64_t j = 0; j < z.keys; ++j) {
            sum +=
                p[(lane * z.queries + i) * z.keys + j] * v[(key_lane * z.keys + j) * z.value + d];
          }
          y[(lane * z.queries + i) * z.value + d] = sum;
        }
      }
    }
  }

  // Passes a tensor through a subgraph in the softmax's precision.
  Result<Tensor> Modify(const std::optional<Body>& body, Tensor tensor, DataType type,
                        std::span<const Value> captures, const RunOptions& options) const {
    const DataType fallback = type == DataType::kDouble ? DataType::kDouble : DataType::kFloat;
    const DataType precision = precision_ == DataType::kUndefined ? fallback : precision_;
    ONNXD_ASSIGN_OR_RETURN(Tensor narrow, Converted(tensor, precision));
    if (body) {
      const Shape shape = narrow.shape();
      ONNXD_ASSIGN_OR_RETURN(auto results, body->Run({std::move(narrow)}, captures, options));
      if (!results[0].is_tensor() || !(results[0].tensor().shape() == shape)) {
        return InvalidArgument("a modifier changed the shape of its tensor");
      }
      narrow = results[0].tensor();
    }
    ONNXD_ASSIGN_OR_RETURN(Tensor wide, Converted(narrow, DataType::kDouble));
    if (wide.raw() != narrow.raw()) return wide;
    // The softmax works in place; what a subgraph handed out may be shared.
    ONNXD_ASSIGN_OR_RETURN(Tensor copy, Tensor::Create(DataType::kDouble, wide.shape()));
    std::copy_n(wide.data<double>(), wide.ElementCount(), copy.mutable_data<double>());
    return copy;
  }

  std::optional<Body> scores_, probabilities_;
  float scale_;
  DataType precision_;
  std::string name_;
};

Result<std::optional<Body>> MakeModifier(const Node& node, std::string_view attribute,
                                         const ExecutorOptions& options) {
  if (!node.attributes.Has(attribute)) return std::optional<Body>();
  const std::shared_ptr<Graph> graph = node.attributes.Subgraph(attribute);
  if (graph->inputs.size() != 1 || graph->outputs.size() != 1) {
    return InvalidArgument(
        StrCat(Describe(node), " attribute '", attribute, "' must have one input and one output"));
  }
  ONNXD_ASSIGN_OR_RETURN(Body body, MakeBody(node, attribute, options));
  return std::optional<Body>(std::move(body));
}

}  // namespace

Result<std::unique_ptr<ControlFlow>> MakeFlexAttention(const Node& node,
                                                       const ExecutorOptions& options) {
  const int64_t precision = node.attributes.Int("softmax_precision", 1);
  if (!IsDataType(precision) || !IsFloatingPoint(static_cast<DataType>(precision))) {
    return InvalidArgument(StrCat(Describe(node), ": softmax_precision is ", precision));
  }
  ONNXD_ASSIGN_OR_RETURN(auto scores, MakeModifier(node, "score_mod", options));
  ONNXD_ASSIGN_OR_RETURN(auto probabilities, MakeModifier(node, "prob_mod", options));
  return std::unique_ptr<ControlFlow>(
      std::make_unique<FlexAttention>(node, std::move(scores), std::move(probabilities)));
}

}  // namespace onnxd
