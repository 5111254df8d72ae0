#include "server/http/content_coding.h"

#include <boost/beast/core/string.hpp>
#include <cstdlib>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using boost::beast::iequals;

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool Is(std::string_view text, std::string_view name) {
  return iequals({text.data(), text.size()}, {name.data(), name.size()});
}

// Takes what comes before `separator` off the front.
std::string_view TakeUntil(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return Trimmed(taken);
}

// "q=0", "q=0.000": not wanted.
bool IsRefused(std::string_view parameters) {
  if (!parameters.starts_with("q=") && !parameters.starts_with("Q=")) return false;
  return std::strtod(std::string(parameters.substr(2, 5)).c_str(), nullptr) <= 0;
}

}  // namespace

Result<HttpBody> DecodeBody(HttpBody body, std::string_view content_encoding, int64_t limit,
                            const std::function<bool(int64_t)>& admit) {
  const std::string_view coding = Trimmed(content_encoding);
  if (coding.empty() || Is(coding, "identity")) return body;
  const bool gzip = Is(coding, "gzip") || Is(coding, "x-gzip");
  if (!gzip && !Is(coding, "deflate")) {
    return Unimplemented(StrCat("content coding '", coding.substr(0, 32),
                                "' is not supported; identity, gzip and deflate are"));
  }
  ONNXD_ASSIGN_OR_RETURN(
      std::string bytes,
      Inflate(body.bytes, gzip ? Compression::kGzip : Compression::kZlib, limit, admit));
  const auto whole = std::make_shared<std::string>(std::move(bytes));
  return HttpBody{*whole, whole};
}

std::optional<Compression> AcceptedCompression(std::string_view accept_encoding) {
  std::optional<Compression> found;
  while (!accept_encoding.empty()) {
    std::string_view entry = TakeUntil(accept_encoding, ',');
    const std::string_view coding = TakeUntil(entry, ';');
    if (IsRefused(entry)) continue;
    if (Is(coding, "gzip")) return Compression::kGzip;
    if (Is(coding, "deflate")) found = Compression::kZlib;
  }
  return found;
}

void CompressAnswer(HttpResponse& response, Compression compression, int64_t least) {
  if (static_cast<int64_t>(response.body.size()) < least) return;
  std::string compressed = Deflate(response.body, compression);
  if (compressed.empty() || compressed.size() >= response.body.size()) return;
  response.body = std::move(compressed);
  response.headers.emplace_back("Content-Encoding",
                                compression == Compression::kGzip ? "gzip" : "deflate");
  response.headers.emplace_back("Vary", "Accept-Encoding");
}

}  // namespace onnxd
