// onnxd check MODEL: whether a model is valid and would be served.
#include <cstdio>

#include "tools/command.h"

namespace onnxd {
int Check(const CheckFlags& flags) {
  auto options = flags.session.ToOptions();
  if (!options.ok()) return Fail(options.status());
  const auto session = InferenceSession::Load(flags.model, std::move(*options));
  if (!session.ok()) return Fail(session.status().WithContext(flags.model));
  std::printf("%s: valid, every node runs\n", flags.model.c_str());
  return kExitOk;
}

}  // namespace onnxd
