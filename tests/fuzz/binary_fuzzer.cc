// Fuzz target: any bytes as the body of an infer request with binary tensor data. The first
// chooses the model and how the body is coded, the next two are the length of its JSON.
#include "runtime/base/str_cat.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/served.h"

namespace onnxd {

void FuzzBinary(std::string_view bytes) {
  if (bytes.size() < 3) return;
  constexpr const char* kCodings[] = {"", "Content-Encoding: gzip\r\n",
                                      "Content-Encoding: deflate\r\n", ""};
  const auto choice = static_cast<uint8_t>(bytes[0]);
  const int header = static_cast<uint8_t>(bytes[1]) + 256 * static_cast<uint8_t>(bytes[2]);
  const std::string_view body = bytes.substr(3);
  const std::string answer = Served::Get().AskRest(
      StrCat("POST /v2/models/", choice % 2 == 0 ? "iris_forest" : "digits_cnn",
             "/infer HTTP/1.1\r\nHost: h\r\nConnection: close\r\n", kCodings[choice / 2 % 4],
             "Inference-Header-Content-Length: ", header, "\r\nContent-Length: ", body.size(),
             "\r\n\r\n", body),
      false);
  if (!answer.starts_with("HTTP/1.1 ")) Finding(StrCat("no answer: ", answer));
}

}  // namespace onnxd
