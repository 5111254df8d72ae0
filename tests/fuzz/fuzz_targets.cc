#include "tests/fuzz/fuzz_targets.h"

#include <map>

namespace onnxd {

FuzzTarget FuzzTargetNamed(std::string_view name) {
  static const std::map<std::string_view, FuzzTarget> targets = {
      {"model", FuzzModel},   {"http", FuzzHttp}, {"json", FuzzJson},
      {"binary", FuzzBinary}, {"grpc", FuzzGrpc}, {"scan", FuzzScan}, {"tokenizer", FuzzTokenizer}};
  const auto found = targets.find(name);
  return found == targets.end() ? nullptr : found->second;
}

}  // namespace onnxd
