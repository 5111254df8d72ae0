#include "server/texts/text_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"
#include "server/texts/tokenizer_model.h"

namespace onnxd {
namespace {

using Pooling = TextPlan::Pooling;

constexpr std::array<const char*, 3> kTokenInputs = {"input_ids", "attention_mask",
                                                     "token_type_ids"};
constexpr size_t kMask = 1;
constexpr int64_t kLeastPadded = 16, kMostPadded = 512;  // tokens
constexpr const char* kEmbedding = "embedding";

std::optional<size_t> PlaceOf(const std::string& name,
                              const std::vector<TensorSignature>& signature) {
  const auto found = std::find_if(signature.begin(), signature.end(),
                                  [&](const TensorSignature& s) { return s.name == name; });
  if (found == signature.end()) return std::nullopt;
  return static_cast<size_t>(found - signature.begin());
}

std::string NamesOf(const std::vector<TensorSignature>& signature) {
  std::vector<std::string> names;
  for (const TensorSignature& s : signature) names.push_back(s.name);
  return StrJoin(names, ", ");
}

// The number of tokens that the model takes; 0: any.
int64_t FixedLength(const TensorSignature& ids) {
  const auto& shape = ids.type.shape;
  return shape && shape->size() == 2 && (*shape)[1].known() ? (*shape)[1].value : 0;
}

TensorSignature TextInput(const std::string& name, const TensorSignature& ids) {
  TensorSignature text{name, ids.type};
  text.type.element = DataType::kString;
  text.type.shape = SymbolicShape(1);
  if (ids.type.shape && !ids.type.shape->empty()) (*text.type.shape)[0] = (*ids.type.shape)[0];
  return text;
}

class PlanMaker {
 public:
  PlanMaker(const TextSettings& settings, const std::vector<TensorSignature>& inputs,
            const std::vector<TensorSignature>& outputs)
      : settings_(settings), inputs_(inputs), outputs_(outputs) {}

  Result<std::shared_ptr<const TextPlan>> Make(const std::string& folder, SessionOptions options) {
    const auto ids = PlaceOf(kTokenInputs[0], inputs_);
    if (!ids) {
      return InvalidArgument(
          StrCat("the model has no input '", kTokenInputs[0], "'; it takes: ", NamesOf(inputs_)));
    }
    ONNXD_RETURN_IF_ERROR(AddInputs(inputs_[*ids]));
    ONNXD_RETURN_IF_ERROR(AddOutputs());
    const TokenizerOptions tokenizer{settings_.pairs, settings_.max_length,
                                     FixedLength(inputs_[*ids]), /*as_saved=*/false};
    ONNXD_ASSIGN_OR_RETURN(
        TokenizerModel made,
        MakeTokenizerModel((std::filesystem::path(folder) / settings_.tokenizer).string(),
                           tokenizer));
    plan_->max_length = made.max_length;
    plan_->pad_id = made.pad_id;
    options.cache = nullptr;
    ONNXD_ASSIGN_OR_RETURN(plan_->tokenizer,
                           InferenceSession::FromModel(std::move(made.model), std::move(options)));
    return std::shared_ptr<const TextPlan>(plan_);
  }

 private:
  Status AddInputs(const TensorSignature& ids) {
    plan_->client_inputs.push_back(TextInput("text", ids));
    if (settings_.pairs) plan_->client_inputs.push_back(TextInput("text_pair", ids));
    plan_->texts = plan_->client_inputs.size();
    for (const TensorSignature& input : inputs_) {
      const auto* const tokens = std::find(kTokenInputs.begin(), kTokenInputs.end(), input.name);
      const bool is_tokens = tokens != kTokenInputs.end();
      if (is_tokens && (!input.type.is_tensor() || !IsConvertible(input.type.element))) {
        return InvalidArgument(
            StrCat("input '", input.name, "' of type ", ToString(input.type), " takes no tokens"));
      }
      if (PlaceOf(input.name, plan_->client_inputs)) {
        return InvalidArgument(StrCat("the model has an input '", input.name, "' of its own"));
      }
      const auto index = is_tokens ? static_cast<size_t>(tokens - kTokenInputs.begin())
                                   : plan_->client_inputs.size();
      plan_->inputs.push_back({is_tokens, index, input.type.element});
      if (!is_tokens) plan_->client_inputs.push_back(input);
    }
    return Status::Ok();
  }

  Status AddOutputs() {
    plan_->client_outputs = outputs_;
    if (settings_.pooling.empty()) return Status::Ok();
    plan_->pooling = settings_.pooling == "mean"  ? Pooling::kMean
                     : settings_.pooling == "cls" ? Pooling::kFirst
                                                  : Pooling::kLast;
    plan_->normalizes = settings_.normalize;
    const auto pooled = std::find_if(outputs_.begin(), outputs_.end(), HasTokenVectors);
    if (pooled == outputs_.end()) {
      return InvalidArgument(StrCat("'pooling' needs an output of a vector for each token, ",
                                    "[batch, tokens, size]; the model has: ", NamesOf(outputs_)));
    }
    if (PlaceOf(kEmbedding, outputs_)) {
      return InvalidArgument(StrCat("the model has an output '", kEmbedding, "' of its own"));
    }
    plan_->pooled = static_cast<size_t>(pooled - outputs_.begin());
    TensorSignature& embedding = plan_->client_outputs[plan_->pooled];
    embedding.name = kEmbedding;
    embedding.type.element = DataType::kFloat;
    embedding.type.shape->erase(embedding.type.shape->begin() + 1);
    return Status::Ok();
  }

  const TextSettings& settings_;
  const std::vector<TensorSignature>&inputs_, &outputs_;
  const std::shared_ptr<TextPlan> plan_ = std::make_shared<TextPlan>();
};

// Adds the tokens' vectors, of so many elements, that `pooling` takes; how many these are.
int64_t AddTokens(Pooling pooling, std::span<const int64_t> mask, const float* vectors,
                  int64_t size, std::span<float> sums) {
  const auto first = std::find(mask.begin(), mask.end(), 1);
  const auto last = std::find(mask.rbegin(), mask.rend(), 1);
  if (first == mask.end()) return 0;
  int64_t begin = first - mask.begin(), end = mask.rend() - last;
  if (pooling == Pooling::kFirst) end = begin + 1;
  if (pooling == Pooling::kLast) begin = end - 1;
  int64_t count = 0;
  for (int64_t token = begin; token < end; ++token) {
    if (mask[static_cast<size_t>(token)] != 1) continue;
    ++count;
    const float* const vector = vectors + token * size;
    for (int64_t i = 0; i < size; ++i) sums[static_cast<size_t>(i)] += vector[i];
  }
  return count;
}

void Scale(std::span<float> numbers, double factor) {
  for (float& number : numbers) number = static_cast<float>(number * factor);
}

void Normalize(std::span<float> vector) {
  double squares = 0;
  for (const float number : vector) squares += double{number} * number;
  Scale(vector, 1 / std::max(std::sqrt(squares), 1e-12));
}

}  // namespace

bool IsTokenInput(const std::string& name) {
  return std::find(kTokenInputs.begin(), kTokenInputs.end(), name) != kTokenInputs.end();
}

bool HasTokenVectors(const TensorSignature& output) {
  return output.type.is_tensor() && IsFloatingPoint(output.type.element) && output.type.shape &&
         output.type.shape->size() == 3;
}

Result<std::shared_ptr<const TextPlan>> MakeTextPlan(const TextSettings& settings,
                                                     const std::string& folder,
                                                     const std::vector<TensorSignature>& inputs,
                                                     const std::vector<TensorSignature>& outputs,
                                                     SessionOptions options) {
  auto plan = PlanMaker(settings, inputs, outputs).Make(folder, std::move(options));
  if (!plan.ok()) return plan.status().WithContext("texts");
  return plan;
}

std::vector<PaddedDimension> TextPadding(const TextPlan& plan,
                                         const std::vector<TensorSignature>& inputs) {
  const auto ids = PlaceOf(kTokenInputs[0], inputs);
  if (!ids || !inputs[*ids].type.shape || inputs[*ids].type.shape->size() != 2) return {};
  PaddedDimension padded;
  padded.dimension = (*inputs[*ids].type.shape)[1].symbol;
  if (padded.dimension.empty()) return {};
  for (const TensorSignature& input : inputs) {
    if (!input.type.shape) return {};
    const auto& shape = *input.type.shape;
    const bool has_it = std::any_of(shape.begin(), shape.end(), [&](const Dimension& dimension) {
      return dimension.symbol == padded.dimension;
    });
    if (has_it && !IsTokenInput(input.name)) return {};
    if (has_it) padded.values[input.name] = 0;
  }
  padded.values[kTokenInputs[0]] = static_cast<double>(plan.pad_id);
  if (padded.values.contains(kTokenInputs[kMask])) padded.mask = kTokenInputs[kMask];
  const int64_t most = plan.max_length > 0 ? plan.max_length : kMostPadded;
  for (int64_t size = kLeastPadded; size < most; size *= 2) padded.sizes.push_back(size);
  padded.sizes.push_back(most);
  return {std::move(padded)};
}

Result<std::vector<Value>> TokensOf(const TextPlan& plan, std::span<const Value> client_inputs,
                                    const RunOptions& options) {
  ONNXD_ASSIGN_OR_RETURN(const std::vector<Value> tokens,
                         plan.tokenizer->Run(client_inputs.first(plan.texts), options));
  std::vector<Value> inputs;
  for (const TextPlan::Input& input : plan.inputs) {
    const Value& value = input.is_tokens ? tokens[input.index] : client_inputs[input.index];
    if (!input.is_tokens || input.type == DataType::kInt64) {
      inputs.push_back(value);
      continue;
    }
    ONNXD_ASSIGN_OR_RETURN(Tensor converted, Converted(value.tensor(), input.type));
    inputs.emplace_back(std::move(converted));
  }
  inputs.push_back(tokens[kMask]);
  return inputs;
}

int64_t CountTokens(const Tensor& mask) {
  const auto elements = mask.elements<int64_t>();
  return std::accumulate(elements.begin(), elements.end(), int64_t{0});
}

Status Pool(const TextPlan& plan, const Tensor& mask, std::vector<Value>& outputs) {
  if (plan.pooling == Pooling::kNone) return Status::Ok();
  const Tensor& output = outputs[plan.pooled].tensor();
  const Shape& shape = output.shape();
  const Shape& masked = mask.shape();
  if (shape.rank() != 3 || shape[0] != masked[0] || shape[1] < masked[1]) {
    return Internal(StrCat("texts: the output to pool has shape ", shape.ToString(), ", expected [",
                           masked[0], ", ", masked[1], ", size]"));
  }
  ONNXD_ASSIGN_OR_RETURN(const Tensor vectors, Converted(output, DataType::kFloat));
  ONNXD_ASSIGN_OR_RETURN(Tensor embeddings,
                         Tensor::Create(DataType::kFloat, Shape{shape[0], shape[2]}));
  const int64_t size = shape[2];
  for (int64_t row = 0; row < shape[0]; ++row) {
    const std::span<float> sums(embeddings.mutable_data<float>() + row * size,
                                static_cast<size_t>(size));
    std::fill(sums.begin(), sums.end(), 0.0f);
    const std::span<const int64_t> own(mask.data<int64_t>() + row * masked[1],
                                       static_cast<size_t>(masked[1]));
    const int64_t count =
        AddTokens(plan.pooling, own, vectors.data<float>() + row * shape[1] * size, size, sums);
    if (count > 1) Scale(sums, 1.0 / static_cast<double>(count));
    if (plan.normalizes) Normalize(sums);
  }
  outputs[plan.pooled] = std::move(embeddings);
  return Status::Ok();
}

}  // namespace onnxd
