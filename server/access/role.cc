#include "server/access/role.h"

#include <cstddef>

namespace onnxd {
namespace {

constexpr std::string_view kRoleNames[] = {"nobody", "predict", "read", "admin"};

}  // namespace

std::string_view RoleName(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

std::optional<Role> RoleNamed(std::string_view name) {
  for (const Role role : {Role::kPredict, Role::kRead, Role::kAdmin}) {
    if (RoleName(role) == name) return role;
  }
  return std::nullopt;
}

}  // namespace onnxd
