// iris MODEL: which iris has these measurements.
#include <cinttypes>
#include <cstdio>

#include "runtime/providers/default_providers.h"
#include "runtime/session/inference_session.h"

int Fail(const onnxd::Status& status) { return std::fprintf(stderr, "%s\n", status.ToString().c_str()), 1; }

int main(int, char** arguments) {
  onnxd::SessionOptions options;
  options.providers = *onnxd::MakeProviders({});
  const auto session = onnxd::InferenceSession::Load(arguments[1], options);
  if (!session.ok()) return Fail(session.status());
  const onnxd::Value measurements = onnxd::Tensor::Of<float>({1, 4}, {5.1f, 3.5f, 1.4f, 0.2f});
  const auto outputs = (*session)->Run({&measurements, 1}, {});
  if (!outputs.ok()) return Fail(outputs.status());
  std::printf("species %" PRId64 "\n", *outputs->at(0).tensor().data<int64_t>());
}
