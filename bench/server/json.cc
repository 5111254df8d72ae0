// Tensors to and from JSON beside simdjson's On-Demand interface, which writes the same numbers
// into a float buffer and checks nothing. One thread, rounds in turn, medians.
//   build/release/bench/server/json [ROUNDS]
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "bench/server/on_demand.h"
#include "server/http/json_tensor.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

using Clock = std::chrono::steady_clock;

Tensor Numbers(int64_t count) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  Tensor tensor = *Tensor::Create(DataType::kFloat, Shape({1, count}));
  for (int64_t i = 0; i < count; ++i) tensor.mutable_data<float>()[i] = normal(generator);
  return tensor;
}

template <typename Work>
double Milliseconds(Work work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void Check(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "json: %s\n", what);
  std::exit(1);
}

Tensor Ours(const std::string& text, const ValueType& type) {
  Tensor tensor;
  const HttpBody body{text, nullptr, text.capacity() - text.size()};
  const Status read = ReadJsonObject(body, [&](std::string_view, JsonValue value) {
    ONNXD_ASSIGN_OR_RETURN(
        tensor, TensorFromNested(value, type, "input", static_cast<int64_t>(text.size() / 8), {}));
    return Status::Ok();
  });
  Check(read.ok(), "no tensor comes of the text");
  return tensor;
}

void Run(int rounds) {
  constexpr int64_t kRead = 150'000, kWritten = 1'000;
  const Tensor numbers = Numbers(kRead), few = Numbers(kWritten);
  NonFiniteNumbers non_finite;
  std::string text = "{\"input\":";
  Check(AppendNested(text, Value(numbers), non_finite).ok(), "the numbers cannot be written");
  text += "}";
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  const ValueType type = ValueType::TensorOf(DataType::kFloat, SymbolicShape(2));
  std::vector<float> buffer(kRead);
  std::vector<double> on_demand, ours, written;
  for (int round = 0; round < rounds; ++round) {
    on_demand.push_back(
        Milliseconds([&] { Check(ReadOnDemand(text, buffer), "On-Demand failed"); }));
    Tensor tensor;
    ours.push_back(Milliseconds([&] { tensor = Ours(text, type); }));
    Check(std::equal(buffer.begin(), buffer.end(), tensor.data<float>()), "the numbers differ");
    Check(std::equal(buffer.begin(), buffer.end(), numbers.data<float>()), "numbers got lost");
    written.push_back(Milliseconds([&] {
      std::string out;
      Check(AppendNested(out, Value(few), non_finite).ok(), "the numbers cannot be written");
    }));
  }
  std::printf(
      "%zu bytes, %lld floats read: On-Demand %.3f ms, onnxd %.3f ms, ratio %.2f (goal 1.1)\n",
      text.size(), static_cast<long long>(kRead), Median(on_demand), Median(ours),
      Median(ours) / Median(on_demand));
  std::printf("%lld floats written: %.3f ms (goal 0.1)\n", static_cast<long long>(kWritten),
              Median(written));
}

}  // namespace
}  // namespace onnxd

int main(int argc, char** argv) { onnxd::Run(argc > 1 ? std::atoi(argv[1]) : 101); }
