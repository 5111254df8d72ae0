#include "server/config/server_options.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 46;
constexpr int64_t kMaxSeconds = 86400;

using Keys = std::vector<OptionKey<ServerOptions>>;

template <typename Part>
void AddSection(const std::string& name, Part ServerOptions::*part,
                const std::vector<OptionKey<Part>>& keys, Keys& all) {
  for (const auto& key : keys) all.push_back(key.Within(part, name));
}

std::vector<OptionKey<ServerOptions::Listen>> ListenKeys() {
  using L = ServerOptions::Listen;
  return {
      TextKey("bind", &L::bind),
      NumberKey("http_port", &L::http_port, 0, 65535),
      NumberKey("grpc_port", &L::grpc_port, 0, 65535),
      NumberKey("metrics_port", &L::metrics_port, 0, 65535),
      SwitchKey("one_port", &L::one_port),
      TextKey("http_socket", &L::http_socket),
      TextKey("grpc_socket", &L::grpc_socket),
      NumberKey("io_threads", &L::io_threads, 1, 256),
      NumberKey("compress_from_bytes", &L::compress_from_bytes, 0, kMaxBytes),
      TextKey("json_non_finite", &L::json_non_finite, {"null", "token", "error"}),
      ListKey("trusted_proxies", &L::trusted_proxies),
      ListKey("cors_origins", &L::cors_origins),
      TextKey("load_report", &L::load_report, {"asked", "always", "off"}),
      TextKey("metrics_compat", &L::metrics_compat, {"none", "triton"}),
      SwitchKey("shared_memory", &L::shared_memory),
      TextKey("predict_route", &L::predict_route),
      TextKey("health_route", &L::health_route),
  };
}

std::vector<OptionKey<ServerOptions::Sources>> SourcesKeys() {
  using S = ServerOptions::Sources;
  return {
      TextKey("cache_dir", &S::cache_dir),
      NumberKey("cache_bytes", &S::cache_bytes, 1 << 20, kMaxBytes, "bytes"),
      NumberKey("poll_interval_s", &S::poll_interval_s, 0, kMaxSeconds, "s"),
  };
}

std::vector<OptionKey<ServerOptions::Models>> ModelsKeys() {
  using M = ServerOptions::Models;
  return {
      ListKey("repository", &M::repository),
      TextKey("default_model", &M::default_model),
      TextKey("control_mode", &M::control_mode, {"auto", "poll", "fixed", "explicit"}),
      TextKey("readiness", &M::readiness, {"any", "all"}),
      NumberKey("poll_interval_s", &M::poll_interval_s, 1, kMaxSeconds, "s"),
      ListKey("versions", &M::versions),
      TextKey("update_policy", &M::update_policy, {"availability", "unload_first"}),
      SwitchKey("warm_up", &M::warm_up),
      TextKey("warm_up_failure", &M::warm_up_failure, {"publish", "refuse"}),
      SwitchKey("texts", &M::texts),
      NumberKey("load_timeout_s", &M::load_timeout_s, 1, kMaxSeconds, "s"),
      NumberKey("min_resident_s", &M::min_resident_s, 0, kMaxSeconds, "s"),
      TextKey("state_dir", &M::state_dir),
      TextKey("model_name", &M::model_name),
  };
}

std::vector<OptionKey<ServerOptions::Runtime>> RuntimeKeys() {
  using R = ServerOptions::Runtime;
  return {
      ListKey("providers", &R::providers),
      ListKey("plugins", &R::plugins),
      TextKey("optimization", &R::optimization, {"disable", "basic", "extended", "all"}),
      TextKey("cache_dir", &R::cache_dir),
      NumberKey("cache_bytes", &R::cache_bytes, 0, kMaxBytes, "bytes"),
      TextKey("precision", &R::precision, {"fp32", "fp16", "bf16", "bf16x3"}),
      SwitchKey("denormals_as_zero", &R::denormals_as_zero),
      NumberKey("threads", &R::threads, 0, 1024),
      NumberKey("executors", &R::executors, 0, 1024),
      NumberKey("max_run_bytes", &R::max_run_bytes, 1 << 20, kMaxBytes, "bytes"),
  };
}

std::vector<OptionKey<ServerOptions::Limits>> LimitsKeys() {
  using L = ServerOptions::Limits;
  return {
      NumberKey("memory_bytes", &L::memory_bytes, 0, kMaxBytes, "bytes"),
      NumberKey("connections", &L::connections, 1, 1000000),
      NumberKey("connections_per_client", &L::connections_per_client, 0, 1000000),
      NumberKey("header_timeout_s", &L::header_timeout_s, 1, kMaxSeconds, "s"),
      NumberKey("idle_timeout_s", &L::idle_timeout_s, 1, kMaxSeconds, "s"),
      NumberKey("write_timeout_s", &L::write_timeout_s, 1, kMaxSeconds, "s"),
      NumberKey("body_bytes", &L::body_bytes, 1024, kMaxBytes, "bytes"),
      NumberKey("buffered_bytes", &L::buffered_bytes, 1024, kMaxBytes, "bytes"),
      NumberKey("response_cache_bytes", &L::response_cache_bytes, 0, kMaxBytes, "bytes"),
      NumberKey("json_depth", &L::json_depth, 4, 1000),
      NumberKey("queue_requests", &L::queue_requests, 1, 10000000),
      NumberKey("requests_per_connection", &L::requests_per_connection, 1,
                std::numeric_limits<int64_t>::max()),
      NumberKey("connection_age_s", &L::connection_age_s, 0, kMaxSeconds, "s"),
      NumberKey("requests_per_client", &L::requests_per_client, 0, 1000000),
      NumberKey("drain_delay_s", &L::drain_delay_s, 0, kMaxSeconds, "s"),
      NumberKey("drain_timeout_s", &L::drain_timeout_s, 0, kMaxSeconds, "s"),
  };
}

std::vector<OptionKey<ServerOptions::Access>> AccessKeys() {
  using A = ServerOptions::Access;
  return {
      TextKey("key_file", &A::key_file),
      TextKey("admin", &A::admin, {"auto", "on", "off"}),
  };
}

std::vector<OptionKey<ServerOptions::Tls>> TlsKeys() {
  using T = ServerOptions::Tls;
  return {
      TextKey("certificate", &T::certificate),
      TextKey("key", &T::key),
      TextKey("client_ca", &T::client_ca),
      TextKey("client_certificates", &T::client_certificates, {"off", "request", "require"}),
  };
}

std::vector<OptionKey<ServerOptions::Tracing>> TracingKeys() {
  using T = ServerOptions::Tracing;
  return {
      TextKey("endpoint", &T::endpoint),
      NumberKey("rate", &T::rate, 1, 1'000'000'000),
      TextKey("service_name", &T::service_name),
      TextKey("header_file", &T::header_file),
      TextKey("ca", &T::ca),
  };
}

std::vector<OptionKey<ServerOptions::LogSettings>> LogKeys() {
  using L = ServerOptions::LogSettings;
  return {
      TextKey("level", &L::level, {"debug", "info", "warning", "error", "off"}),
      TextKey("format", &L::format, {"auto", "text", "json"}),
      TextKey("requests", &L::requests, {"off", "notable", "all"}),
  };
}

}  // namespace

const Keys& OptionKeys() {
  static const Keys keys = [] {
    using O = ServerOptions;
    Keys all;
    AddSection("server", &O::server, ListenKeys(), all);
    AddSection("models", &O::models, ModelsKeys(), all);
    AddSection("sources", &O::sources, SourcesKeys(), all);
    AddSection("runtime", &O::runtime, RuntimeKeys(), all);
    AddSection("provider_options", &O::provider_options, ProviderDeviceKeys(), all);
    AddSection("batching", &O::batching, BatchingKeys(), all);
    AddSection("limits", &O::limits, LimitsKeys(), all);
    AddSection("access", &O::access, AccessKeys(), all);
    AddSection("tls", &O::tls, TlsKeys(), all);
    AddSection("tracing", &O::tracing, TracingKeys(), all);
    AddSection("log", &O::log, LogKeys(), all);
    return all;
  }();
  return keys;
}

bool ChangesWhileServing(const std::string& section_key) {
  static const std::set<std::string> keys = {
      "models.default_model",   "models.readiness",       "models.poll_interval_s",
      "models.versions",        "models.update_policy",   "models.warm_up",
      "models.warm_up_failure", "models.texts",           "models.load_timeout_s",
      "models.min_resident_s",  "limits.buffered_bytes",  "limits.memory_bytes",
      "limits.drain_delay_s",   "limits.drain_timeout_s", "limits.response_cache_bytes"};
  return section_key.starts_with("batching.") || section_key.starts_with("log.") ||
         keys.contains(section_key);
}

std::vector<std::string> ChangedKeys(const ServerOptions& from, const ServerOptions& to) {
  std::vector<std::string> changed;
  for (const auto& key : OptionKeys()) {
    if (key.get(from) != key.get(to)) changed.push_back(StrCat(key.section, ".", key.key));
  }
  return changed;
}

bool IsLoopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

Status CheckOptions(const ServerOptions& options) {
  const ServerOptions::Limits& limits = options.limits;
  if (limits.body_bytes > limits.buffered_bytes) {
    return InvalidArgument(StrCat("'limits.body_bytes' ", limits.body_bytes, " is over the ",
                                  limits.buffered_bytes,
                                  " of 'limits.buffered_bytes': such a body could never be read"));
  }
  if (limits.memory_bytes > 0 && limits.body_bytes > limits.memory_bytes) {
    return InvalidArgument(StrCat("'limits.body_bytes' ", limits.body_bytes, " is over the ",
                                  limits.memory_bytes, " of 'limits.memory_bytes'"));
  }
  if (limits.connections_per_client > limits.connections) {
    return InvalidArgument("'limits.connections_per_client' is over 'limits.connections'");
  }
  const ServerOptions::Tls& tls = options.tls;
  if (tls.certificate.empty() != tls.key.empty()) {
    return InvalidArgument("'tls.certificate' and 'tls.key' need each other");
  }
  if ((tls.client_certificates != "off") == tls.client_ca.empty() ||
      (!tls.client_ca.empty() && tls.certificate.empty())) {
    return InvalidArgument(
        "'tls.client_ca', 'tls.client_certificates' and 'tls.certificate' need each other");
  }
  if (options.access.admin == "on" && options.access.key_file.empty() &&
      !IsLoopback(options.server.bind)) {
    return InvalidArgument(StrCat("'access.admin' is on and 'server.bind' is ", options.server.bind,
                                  ", which other machines reach: that needs 'access.key_file'"));
  }
  return CheckSettings(options.batching);
}

ModelSettings DefaultSettings(const ServerOptions& options) {
  ModelSettings settings;
  settings.versions = options.models.versions;
  settings.update_policy = options.models.update_policy;
  settings.warm_up = options.models.warm_up;
  settings.warm_up_failure = options.models.warm_up_failure;
  if (options.models.texts) {
    settings.texts.tokenizer = TextSettings::kFindsFiles;
    settings.generation.tokenizer = GenerationSettings::kFindsFiles;
  }
  settings.provider_options = options.provider_options;
  settings.batching = options.batching;
  return settings;
}

namespace {

std::string VariableName(const std::string& section, const std::string& key) {
  std::string name = StrCat("ONNXD_", section, "_", key);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

}  // namespace

Status ApplyEnvironment(const std::map<std::string, std::string>& variables,
                        ServerOptions& options) {
  for (const auto& variable : variables) {
    const std::string& name = variable.first;
    const auto begins_with_section = [&](const auto& key) {
      return name.starts_with(VariableName(key.section, ""));
    };
    if (std::none_of(OptionKeys().begin(), OptionKeys().end(), begins_with_section)) continue;
    const auto key = std::find_if(OptionKeys().begin(), OptionKeys().end(), [&](const auto& k) {
      return VariableName(k.section, k.key) == name;
    });
    if (key == OptionKeys().end()) {
      return InvalidArgument(StrCat("environment variable ", name, " names no configuration key"));
    }
    ONNXD_RETURN_IF_ERROR(key->set(options, variable.second).WithContext(name));
  }
  return Status::Ok();
}

}  // namespace onnxd
