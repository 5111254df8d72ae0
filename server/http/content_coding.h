// Content codings of bodies: what clients send compressed, and what they are answered compressed.
// Source: RFC 9110, sections 8.4 and 12.5.3.
#pragma once

#include "server/http/http_message.h"
#include "server/net/inflate.h"

namespace onnxd {

// The body without its Content-Encoding, where that is gzip or deflate. Fails as Inflate;
// kUnimplemented for other codings.
Result<HttpBody> DecodeBody(HttpBody body, std::string_view content_encoding, int64_t limit,
                            const std::function<bool(int64_t)>& admit);

// Of the value of Accept-Encoding, gzip first; nullopt: neither gzip nor deflate.
std::optional<Compression> AcceptedCompression(std::string_view accept_encoding);

// Compresses the body, unless it is shorter than `least` bytes or gains nothing.
void CompressAnswer(HttpResponse& response, Compression compression, int64_t least);

}  // namespace onnxd
