// What a caller needs for each call of the APIs: one table for REST and gRPC.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/access/role.h"

namespace onnxd {

// Which models a key must be for.
enum class Scope {
  kAny,     // any: the call tells and changes nothing of a model, or asks the grant itself
  kModel,   // the one that the call names; all where it names none
  kServer,  // all
};

struct Route {
  Role role;
  Scope scope;
  std::string_view model =
      {};  // that a REST path of Scope::kModel names; gRPC has it in the message
};

// Of a REST path, in its segments, which keep the model's name, with any method; nullopt when it is
// no path of the API.
std::optional<Route> RouteOfPath(const std::vector<std::string>& segments);
// Of a gRPC method, "/package.Service/Method"; nullopt when it is unknown.
std::optional<Route> RouteOfMethod(std::string_view method);

}  // namespace onnxd
