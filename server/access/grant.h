// Grant: what the key of one call lets it do.
#pragma once

#include <memory>
#include <string_view>

#include "server/access/api_key.h"
#include "server/access/route.h"

namespace onnxd {

// Counts as one of its key's requests at once until it is gone. Any thread.
class Grant {
 public:
  // A null key: everything. `place` is held.
  Grant(std::shared_ptr<const ApiKey> key, std::shared_ptr<const void> place)
      : key_(std::move(key)), place_(std::move(place)) {}

  // The key's name; empty where none was needed.
  std::string_view key_name() const { return key_ == nullptr ? std::string_view() : key_->name; }
  // Whether it is for all models.
  bool for_all_models() const { return key_ == nullptr || key_->models.empty(); }
  // kPermissionDenied where the key is not for that model, which may be there or not.
  Status CheckModel(std::string_view model) const;
  // The same for a call of that scope, and for the model it names.
  Status CheckScope(Scope scope, std::string_view model) const;

 private:
  const std::shared_ptr<const ApiKey> key_;
  const std::shared_ptr<const void> place_;
};

}  // namespace onnxd
