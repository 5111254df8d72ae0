// Roles of keys.
#pragma once

#include <optional>
#include <string_view>

namespace onnxd {

// Each may do what those before it may.
enum class Role {
  kNobody,   // health
  kPredict,  // inference and what a client must know of its model
  kRead,     // configuration, index, metrics
  kAdmin,    // whatever changes the server
};

// "predict", "read", "admin"; "nobody" names no key's role.
std::string_view RoleName(Role role);
std::optional<Role> RoleNamed(std::string_view name);

}  // namespace onnxd
