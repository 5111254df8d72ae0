#include "tools/collector.h"

#include <unistd.h>

#include <array>
#include <fstream>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr int kTimeoutSeconds = 5;
constexpr std::string_view kDefaultPath = "/v1/traces";
constexpr size_t kMostHeaders = 32;

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool IsHeaderName(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_';
  });
}

bool IsHeaderValue(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7f; });
}

Result<std::map<std::string, std::string>> ReadHeaders(const std::string& path) {
  std::map<std::string, std::string> headers;
  if (path.empty()) return headers;
  std::ifstream file(path);
  if (!file) return InvalidArgument(StrCat("'tracing.header_file' ", path, " cannot be read"));
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (Trimmed(line).empty()) continue;
    const size_t colon = line.find(':');
    const std::string_view name = Trimmed(std::string_view(line).substr(0, colon));
    const std::string_view value =
        colon == std::string::npos ? "" : Trimmed(std::string_view(line).substr(colon + 1));
    if (!IsHeaderName(name) || !IsHeaderValue(value) || headers.size() == kMostHeaders) {
      return InvalidArgument(StrCat("'tracing.header_file' ", path, ", line ", number,
                                    ": not \"Name: value\", or more than ", kMostHeaders));
    }
    headers.emplace(name, value);
  }
  return headers;
}

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

Result<Collector> CollectorOf(const ServerOptions::Tracing& options) {
  const std::string& url = options.endpoint;
  const size_t scheme = url.find("://");
  if (!url.starts_with("http://") && !url.starts_with("https://")) {
    return InvalidArgument(
        StrCat("'tracing.endpoint' '", url, "' is no URL: http://HOST:PORT or https://HOST:PORT"));
  }
  Collector collector;
  const size_t slash = url.find('/', scheme + 3);
  collector.address.url = url.substr(0, slash);
  collector.path = slash == std::string::npos ? "" : url.substr(slash);
  if (collector.path.empty() || collector.path == "/") collector.path = kDefaultPath;
  collector.address.ca = options.ca;
  collector.address.timeout_s = kTimeoutSeconds;
  if (!options.ca.empty() && access(options.ca.c_str(), R_OK) != 0) {
    return InvalidArgument(StrCat("'tracing.ca' ", options.ca, " cannot be read"));
  }
  ONNXD_ASSIGN_OR_RETURN(collector.address.headers, ReadHeaders(options.header_file));
  return collector;
}

std::unique_ptr<SpanExporter> ExporterOf(const ServerOptions::Tracing& options,
                                         ServerMetrics& metrics) {
  if (options.endpoint.empty()) return nullptr;
  auto send = [collector = CollectorOf(options)](const std::string& body) -> Result<int> {
    if (!collector.ok()) return collector.status();
    ONNXD_ASSIGN_OR_RETURN(const HttpReply reply,
                           Ask(collector->address, "POST", collector->path, body));
    return reply.status;
  };
  return std::make_unique<SpanExporter>(
      SpanExporter::Options(),
      std::map<std::string, std::string>{{"service.name", options.service_name},
                                         {"service.version", ONNXD_VERSION},
                                         {"host.name", HostName()}},
      std::move(send), metrics);
}

}  // namespace onnxd
