// What a request says its body is.
#pragma once

#include "server/http/http_message.h"

namespace onnxd {

// Whether a body may be read as JSON in UTF-8, or as the binary extension: what clients send for it
// differs, and curl's default names a form, so only what cannot be is refused: multipart, and
// other sets of characters. kUnimplemented.
// Source: RFC 9110, 8.3.
Status CheckContentType(const HttpRequest& request);

}  // namespace onnxd
