// How long a connection may go on, so that clients spread over new replicas behind a load balancer
// that chooses per connection.
// Source: MAX_CONNECTION_AGE,
// https://github.com/grpc/proposal/blob/master/A9-server-side-conn-mgt.md
#pragma once

#include <chrono>

#include "server/config/server_options.h"

namespace onnxd {

// When a connection that begins now has had its time: after limits.connection_age_s, a tenth more
// or less, so that those that began together do not end together; never where that is 0.
std::chrono::steady_clock::time_point EndOfAge(const ServerOptions::Limits& limits,
                                               std::chrono::steady_clock::time_point now);

}  // namespace onnxd
