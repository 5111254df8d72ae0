#include "server/http/content_type.h"

#include <algorithm>
#include <array>
#include <boost/beast/http/rfc7230.hpp>

namespace onnxd {
namespace {

namespace beast = boost::beast;

constexpr std::array<beast::string_view, 3> kReadable = {"utf-8", "utf8", "us-ascii"};

beast::string_view Unquoted(beast::string_view text) {
  const bool quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  return quoted ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

Status CheckContentType(const HttpRequest& request) {
  const std::string* const header = request.Header("Content-Type");
  if (header == nullptr) return Status::Ok();
  const beast::string_view value(*header);
  constexpr beast::string_view kMultipart = "multipart/";
  if (beast::iequals(value.substr(0, kMultipart.size()), kMultipart)) {
    return Unimplemented("the body is multipart; send JSON, or the binary extension");
  }
  const auto parameters = value.substr(std::min(value.find(';'), value.size()));
  for (const auto& [name, raw] : beast::http::param_list(parameters)) {
    if (!beast::iequals(name, "charset")) continue;
    const auto charset = Unquoted(raw);
    const bool readable = std::any_of(kReadable.begin(), kReadable.end(), [&](const auto& known) {
      return beast::iequals(known, charset);
    });
    if (!readable) return Unimplemented("the body's charset is not UTF-8");
  }
  return Status::Ok();
}

}  // namespace onnxd
