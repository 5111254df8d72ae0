// GET /docs: a page with an example for each model that runs at a click. It needs nothing but this
// server.
#pragma once

#include <string_view>

namespace onnxd {

std::string_view DocsPage();
// The Content-Security-Policy that it works under.
std::string_view DocsPagePolicy();

}  // namespace onnxd
