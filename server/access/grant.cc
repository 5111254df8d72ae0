#include "server/access/grant.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {

Status Grant::CheckModel(const std::string& model) const {
  if (for_all_models()) return Status::Ok();
  const bool matches =
      std::any_of(key_->models.begin(), key_->models.end(),
                  [&](const std::string& pattern) { return MatchesPattern(model, pattern); });
  if (matches) return Status::Ok();
  return PermissionDenied(StrCat("the key is not for model '", model.substr(0, 128), "'"));
}

}  // namespace onnxd
