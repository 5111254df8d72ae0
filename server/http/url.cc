#include "server/http/url.h"

namespace onnxd {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Without a scheme and a host before it.
std::string_view PathOf(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.substr(0, scheme.size()) != scheme) continue;
    const size_t path = target.find('/', scheme.size());
    return path == std::string_view::npos ? "/" : target.substr(path);
  }
  return target;
}

Result<std::string> Decode(std::string_view raw) {
  std::string out;
  for (size_t i = 0; i < raw.size(); ++i) {
    char c = raw[i];
    if (c == '%') {
      const bool whole = raw.size() - i > 2;
      const int high = whole ? HexDigit(raw[i + 1]) : -1;
      const int low = whole ? HexDigit(raw[i + 2]) : -1;
      if (high < 0 || low < 0) return InvalidArgument("the path has a malformed escape");
      c = static_cast<char>(high << 4 | low);
      i += 2;
      if (c == '/' || c == '\\') return InvalidArgument("the path escapes a slash");
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) return InvalidArgument("the path holds a control character");
    out += c;
  }
  if (out == "." || out == "..") return InvalidArgument("the path has a dot segment");
  return out;
}

// "m:predict" -> {"m", ":predict"}: TensorFlow Serving's verbs stand behind a colon.
void SplitVerb(std::vector<std::string>& segments) {
  if (segments.size() < 3 || segments[0] != "v1") return;
  const size_t colon = segments.back().rfind(':');
  if (colon == std::string::npos || colon == 0) return;
  std::string verb = segments.back().substr(colon);
  if (verb != ":predict" && verb != ":classify" && verb != ":regress" && verb != ":explain") return;
  segments.back().resize(colon);
  segments.push_back(std::move(verb));
}

}  // namespace

Result<std::vector<std::string>> PathSegments(std::string_view target) {
  target = PathOf(target.substr(0, target.find('?')));
  if (target.empty() || target[0] != '/') return InvalidArgument("the path must begin with '/'");
  std::vector<std::string> segments;
  target.remove_prefix(1);
  while (!target.empty()) {
    const size_t cut = target.find('/');
    const std::string_view raw = target.substr(0, cut);
    target = cut == std::string_view::npos ? std::string_view() : target.substr(cut + 1);
    if (raw.empty()) return InvalidArgument("the path has an empty segment");
    ONNXD_ASSIGN_OR_RETURN(std::string segment, Decode(raw));
    segments.push_back(std::move(segment));
  }
  SplitVerb(segments);
  return segments;
}

}  // namespace onnxd
