// new_shapes MODEL.onnx NAME=SYMBOLIC_SHAPE... : what a shape costs that a session has not seen,
// and what a thousand of them leave in memory. A shape is written BxNx768, where N runs over the
// numbers up to 500 and B is 1, then 2.
//   new_shapes bert.onnx input_ids=BxN attention_mask=BxN
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "runtime/providers/default_providers.h"
#include "runtime/session/inference_session.h"

namespace onnxd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kFirst = 8, kTimed = 60, kSizes = 500;

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double ResidentMegabytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  double kilobytes = 0;
  while (status >> word) {
    if (word == "VmRSS:") status >> kilobytes;
  }
  return kilobytes / 1e3;
}

Shape ShapeFor(const std::string& text, int64_t batch, int64_t n) {
  Shape shape;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('x', at), text.size());
    const std::string part = text.substr(at, end - at);
    shape.Append(part == "N" ? n : part == "B" ? batch : std::stoll(part));
    at = end + 1;
  }
  return shape;
}

std::vector<Value> InputsFor(const InferenceSession& session,
                             const std::map<std::string, std::string>& shapes, int64_t n,
                             int64_t batch = 1) {
  std::vector<Value> inputs;
  for (const TensorSignature& signature : session.inputs()) {
    Tensor tensor = std::move(Tensor::Create(signature.type.element,
                                             ShapeFor(shapes.at(signature.name), batch, n)))
                        .value();
    std::fill_n(static_cast<std::byte*>(tensor.mutable_raw()), tensor.bytes(), std::byte{0});
    inputs.emplace_back(std::move(tensor));
  }
  return inputs;
}

int Main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::map<std::string, std::string> shapes;
  for (int i = 2; i < argc; ++i) {
    const std::string text = argv[i];
    shapes[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  SessionOptions options;
  options.providers = *MakeProviders({});
  const auto loaded = InferenceSession::Load(argv[1], std::move(options));
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.status().ToString().c_str());
    return 1;
  }
  const InferenceSession& session = **loaded;
  const auto time = [&](const std::vector<Value>& inputs) {
    const auto begin = Clock::now();
    if (!session.Run(inputs, {}).ok()) std::abort();
    return Milliseconds(Clock::now() - begin);
  };
  time(InputsFor(session, shapes, kFirst - 1));  // packs the weights
  std::vector<double> costs;
  for (int64_t n = kFirst; n < kFirst + kTimed; ++n) {
    const auto inputs = InputsFor(session, shapes, n);
    const double first = time(inputs);
    costs.push_back(first - time(inputs));
  }
  std::sort(costs.begin(), costs.end());
  std::printf("a new shape costs %.2f ms (median of %zu; the dearest tenth from %.2f ms)\n",
              costs[costs.size() / 2], costs.size(), costs[costs.size() * 9 / 10]);
  // The largest first: later ones need no more than they did.
  int64_t seen = 0;
  for (const int64_t batch : {2, 1}) {
    for (int64_t i = 0; i < kSizes; ++i) {
      time(InputsFor(session, shapes, kSizes - i * 37 % kSizes, batch));
      if (++seen % 125 != 0) continue;
      std::printf("resident after %lld shapes: %.1f MB\n", static_cast<long long>(seen),
                  ResidentMegabytes());
    }
  }
  return 0;
}

}  // namespace
}  // namespace onnxd

int main(int argc, char** argv) {
  if (argc >= 2) return onnxd::Main(argc, argv);
  std::fprintf(stderr, "usage: new_shapes MODEL.onnx NAME=BxN...\n");
  return 2;
}
