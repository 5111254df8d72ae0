// Fuzz target: any bytes as a model file, through reader, checker, inference, optimizer and
// preparation; what loads runs once on zeros. scripts/fuzz builds and runs it.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "runtime/providers/default_providers.h"
#include "runtime/session/inference_session.h"
#include "tests/fuzz/fuzz_targets.h"

namespace onnxd {
namespace {

constexpr int64_t kMaxElements = 4096;

SessionOptions Options(uint8_t choice) {
  SessionOptions options;
  options.optimization = choice % 2 == 0 ? OptimizationLevel::kDisable : OptimizationLevel::kAll;
  options.providers = *MakeProviders({});
  options.max_run_bytes = int64_t{32} << 20;
  return options;
}

// Zeros of the declared shape, 1 for every free dimension; nullopt when that is too large.
std::optional<Value> Zeros(const ValueType& type) {
  if (!type.is_tensor()) return std::nullopt;
  Shape shape;
  for (const Dimension& dim : type.shape.value_or(SymbolicShape{})) {
    shape.Append(dim.known() ? dim.value : 1);
  }
  if (!shape.Validate().ok() || shape.ElementCount() > kMaxElements) return std::nullopt;
  Result<Tensor> tensor = Tensor::Create(type.element, shape);
  if (!tensor.ok()) return std::nullopt;
  if (type.element != DataType::kString && tensor->bytes() > 0) {
    auto* bytes = static_cast<std::byte*>(tensor->mutable_raw());
    std::fill(bytes, bytes + tensor->bytes(), std::byte{0});
  }
  return Value(std::move(*tensor));
}

void RunOnZeros(const InferenceSession& session) {
  std::vector<Value> inputs;
  for (const TensorSignature& input : session.inputs()) {
    std::optional<Value> value = Zeros(input.type);
    if (!value) return;
    inputs.push_back(std::move(*value));
  }
  RunOptions options;
  options.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  static_cast<void>(session.Run(inputs, options));
}

}  // namespace

void FuzzModel(std::string_view bytes) {
  const auto choice = static_cast<uint8_t>(bytes.empty() ? 0 : bytes[bytes.size() / 2]);
  const auto session = InferenceSession::LoadBytes(std::string(bytes), Options(choice));
  if (session.ok()) RunOnZeros(**session);
}

}  // namespace onnxd
