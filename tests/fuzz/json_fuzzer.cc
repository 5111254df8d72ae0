// Fuzz target: any bytes as the JSON body of a request; the first one chooses its path.
#include <iterator>

#include "runtime/base/str_cat.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/served.h"

namespace onnxd {
namespace {

constexpr const char* kPaths[] = {"/predict/iris_forest",
                                  "/predict/digits_cnn",
                                  "/predict",
                                  "/v2/models/iris_forest/infer",
                                  "/v2/models/digits_rows/versions/1/infer",
                                  "/v2/repository/index",
                                  "/v2/logging",
                                  "/v2/trace/setting",
                                  "/v2/models/iris_forest/trace/setting",
                                  "/v2/repository/models/iris_forest/load",
                                  "/v2/systemsharedmemory/region/r/register",
                                  "/v1/models/iris_forest:predict",
                                  "/v1/models/digits_rows:predict",
                                  "/v2/repository/models/iris_forest/rollout",
                                  "/v2/repository/models/iris_forest/release",
                                  "/v2/models/iris_forest/generate",
                                  "/v2/models/digits_rows/generate_stream",
                                  "/v1/embeddings"};

}  // namespace

void FuzzJson(std::string_view bytes) {
  if (bytes.empty()) return;
  const char* path = kPaths[static_cast<uint8_t>(bytes[0]) % std::size(kPaths)];
  const std::string_view body = bytes.substr(1);
  const std::string answer = Served::Get().AskRest(
      StrCat("POST ", path, " HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: ",
             body.size(), "\r\n\r\n", body),
      false);
  if (!answer.starts_with("HTTP/1.1 ")) Finding(StrCat("no answer: ", answer));
}

}  // namespace onnxd
