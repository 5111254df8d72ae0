// Numbers of JSON as doubles, exactly.
#pragma once

#include <simdjson.h>

#include <string_view>

namespace onnxd {

// The nearest double. False where it is none, or beyond them all: then nothing has been read.
// simdjson's own On-Demand reader (3.0.1) takes 0.10000000000000000555 and what else begins with
// "0." and has over 19 digits for another number.
bool ReadDouble(simdjson::ondemand::value json, double& to);

// Whether what stands there is a number, but greater than all doubles.
bool IsBeyondDoubles(std::string_view token);

}  // namespace onnxd
