// Errors as clients of OpenAI's API read them: {"error": {"message": ..., "type": ..., ...}}.
#pragma once

#include <string>
#include <string_view>

#include "server/http/http_message.h"

namespace onnxd {

// The object, of an answer of that HTTP status.
std::string OpenAiErrorJson(int status, std::string_view message);

// As ErrorResponse and OverQuotaResponse (server/http/rest_api.h), with that body.
HttpResponse OpenAiRefusal(const Status& status);
HttpResponse OpenAiOverQuota(const Status& status);

}  // namespace onnxd
