// Roles, and which one each call of the APIs needs: one table for REST and gRPC.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// What a REST path, in its segments, needs with any method; nullopt when it is no path of the API.
std::optional<Role> RoleOfPath(const std::vector<std::string>& segments);
// What a gRPC method, "/package.Service/Method", needs; nullopt when it is unknown.
std::optional<Role> RoleOfMethod(std::string_view method);

}  // namespace onnxd
