#include "server/access/grant.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {

Status Grant::CheckModel(std::string_view model) const {
  if (for_all_models()) return Status::Ok();
  const bool matches =
      std::any_of(key_->models.begin(), key_->models.end(),
                  [&](const std::string& pattern) { return MatchesPattern(model, pattern); });
  if (matches) return Status::Ok();
  return PermissionDenied(StrCat("the key is not for model '", model.substr(0, 128), "'"));
}

Status Grant::CheckScope(Scope scope, std::string_view model) const {
  if (scope == Scope::kAny || for_all_models()) return Status::Ok();
  if (scope == Scope::kModel && !model.empty()) return CheckModel(model);
  return PermissionDenied("the key is not for all models");
}

}  // namespace onnxd
