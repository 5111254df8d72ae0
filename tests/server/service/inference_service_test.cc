#include "server/service/inference_service.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/test_model.h"

namespace onnxd {
namespace {

// Sanitizers see what the names are read from.
TEST(InferenceService, NamesModelsWhileTheyComeAndGo) {
  ServerOptions options;
  ServerMetrics metrics;
  ModelRegistry registry;
  const auto memory = std::make_shared<MemoryAccount>();
  Scheduler scheduler({1, 100, 0}, metrics);
  ModelManager manager(DefaultSession(), options, registry, scheduler, metrics, memory);
  Tracer tracer({}, nullptr);
  const InferenceService service(registry, manager, scheduler, metrics, memory, tracer, options);
  std::thread admin([&] {
    for (int i = 0; i < 2000; ++i) {
      auto version = std::make_shared<ModelVersion>();
      version->model = "a name that is longer than what a string holds in itself";
      version->version = "1";
      registry.Publish(version);
      registry.Remove(version->model, version->version);
    }
  });
  for (int i = 0; i < 2000; ++i) EXPECT_LE(service.ModelNames().size(), 1u);
  admin.join();
}

}  // namespace
}  // namespace onnxd
