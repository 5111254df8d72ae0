// Fuzz target: any bytes as an HTTP/1.1 connection of a client: framing, headers, routes.
#include "runtime/base/str_cat.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/served.h"

namespace onnxd {

void FuzzHttp(std::string_view bytes) {
  const std::string answer = Served::Get().AskRest(bytes, true);
  if (!answer.empty() && !answer.starts_with("HTTP/1.")) Finding(StrCat("no HTTP: ", answer));
}

}  // namespace onnxd
