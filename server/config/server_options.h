// ServerOptions: everything that can be configured, with defaults. Filled once in main from the
// configuration file, ONNXD_SECTION_KEY environment variables and flags, in rising priority.
// config/onnxd.yaml documents every key; a test holds that file and this struct together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "server/config/model_settings.h"

namespace onnxd {

struct ServerOptions {
  struct Listen {
    std::string bind = "127.0.0.1";  // address for all ports
    int64_t http_port = 8000;        // 0: any free port, printed at start
    int64_t grpc_port = 8001;
    int64_t metrics_port = 8002;
    bool one_port = false;    // the REST port speaks gRPC as well, and there is no gRPC port
    std::string http_socket;  // paths of unix sockets that speak REST and gRPC, too; empty: none
    std::string grpc_socket;
    int64_t io_threads = 2;
    // answers of so many bytes are compressed for clients that accept it; 0: none
    int64_t compress_from_bytes = int64_t{1} << 20;
    // what NaN and infinities become in JSON answers: null; token: NaN, Infinity and -Infinity, as
    // Python's json module reads them; error: 500
    std::string json_non_finite = "null";
    // addresses and networks, separated by commas, whose X-Forwarded-For tells who the client is;
    // unix: those who connect to the sockets
    std::string trusted_proxies;
    // origins whose pages may call the REST ports from a browser, separated by commas; *: all
    std::string cors_origins;
    // what answers tell load balancers (ORCA): asked: what header endpoint-load-metrics-format asks
    // for; always: the same, and as text, over gRPC as message, without it; off
    std::string load_report = "asked";
    // triton: /metrics has Triton's names (nv_inference_...) as well
    std::string metrics_compat = "none";
    // clients with the role admin may register POSIX shared memory for inputs and outputs; only for
    // clients on this machine that are trusted with all of it
    bool shared_memory = false;
    // paths that stand for /invocations and /ping, like /score; empty: none
    std::string predict_route, health_route;
  } server;
  struct Models {
    // folders NAME/VERSION/model.onnx, separated by commas, or one .onnx file
    std::string repository;
    std::string default_model;  // what /predict means without a name
    // poll: follow the repository; fixed: what is there at the start; explicit: nothing until a
    // request loads it; auto: poll a folder
    std::string control_mode = "auto";
    std::string readiness = "any";    // all: not ready if a model of the first scan failed
    int64_t poll_interval_s = 5;      // where changes are not noticed at once
    std::string versions = "latest";  // latest, latest:N, all, or numbers
    // availability: a new version loads beside the old one; unload_first: after it is gone
    std::string update_policy = "availability";
    bool warm_up = true;  // runs of each batch size before a version is published
    // refuse: a version whose warm-up run fails, or answers NaN or infinity, is not published
    std::string warm_up_failure = "publish";
    bool texts = false;            // models with a tokenizer.json beside them take texts
    int64_t load_timeout_s = 600;  // then a load counts as failed, and others go on
    int64_t min_resident_s = 60;   // a loaded model is not unloaded sooner to make room
    std::string state_dir;         // remembers what was changed by request; empty: nothing does
    std::string model_name;        // the name of a single-file model; empty: the file's stem
  } models;
  // Of repositories that are no folders: s3://, gs://, az://, hf://, https://.
  struct Sources {
    std::string cache_dir;                    // empty: onnxd/sources in the user's cache folder
    int64_t cache_bytes = int64_t{64} << 30;  // of that folder; repositories nobody serves go first
    int64_t poll_interval_s = 60;             // between looks for changes; 0: only at the start
  } sources;
  struct Runtime {
    std::string providers = "cpu";  // by priority, separated by commas
    std::string plugins;            // shared libraries with operators, separated by commas
    std::string optimization = "all";
    std::string cache_dir;                   // folder of prepared models; empty: none
    int64_t cache_bytes = int64_t{8} << 30;  // of that folder's files
    std::string precision = "fp32";          // fp32, fp16, bf16, bf16x3
    bool denormals_as_zero = true;
    int64_t threads = 0;  // that compute requests, shared by those under way; 0: one per core
    int64_t executors = 0;  // requests computed at once; 0: one per processor
    int64_t max_run_bytes = int64_t{4} << 30;
  } runtime;
  ProviderDeviceSettings provider_options;  // of models whose model.yaml says nothing else
  BatchingOptions batching;                 // of models whose model.yaml says nothing else
  struct Limits {
    // weights, packed copies, runs and request bodies of all models; 0: 80% of what there is
    int64_t memory_bytes = 0;
    int64_t connections = 4096;
    int64_t connections_per_client = 0;  // by address; 0: half of these
    int64_t header_timeout_s = 10;
    int64_t idle_timeout_s = 620;
    int64_t write_timeout_s = 10;
    int64_t body_bytes = int64_t{64} << 20;            // REST bodies and gRPC messages
    int64_t buffered_bytes = int64_t{1} << 30;         // bodies of all requests together
    int64_t response_cache_bytes = int64_t{64} << 20;  // of models that want one, together
    int64_t json_depth = 64;
    int64_t queue_requests = 1024;
    int64_t requests_per_connection = 10000;
    int64_t connection_age_s = 0;     // about; then the client is told to open another; 0: never
    int64_t requests_per_client = 0;  // of one address at once; 0: any number
    int64_t drain_delay_s = 5;
    int64_t drain_timeout_s = 25;
  } limits;
  struct Access {
    std::string key_file;  // API keys; empty: none are asked for
    // calls that change the server, auto: with a key, or without keys where server.bind is this
    // machine alone; on: the same, or it does not start; off: never
    std::string admin = "auto";
  } access;
  // Of the REST and gRPC ports; the metrics port and unix sockets stay plain.
  struct Tls {
    std::string certificate;  // PEM, the chain in order; empty: no TLS
    std::string key;          // PEM
    std::string client_ca;    // PEM, of the certificates that clients show
    // off: clients are not asked for one; request: one that is shown is verified; require
    std::string client_certificates = "off";
  } tls;
  // Spans of requests, in OTLP over HTTP.
  struct Tracing {
    // the collector's URL, http://HOST:PORT with or without /v1/traces; empty: none are sent
    std::string endpoint;
    int64_t rate = 1;  // one in so many requests is traced, of those that come without a trace
    std::string service_name = "onnxd";
    std::string header_file;  // lines "Name: value" that the collector asks for; empty: none
    std::string ca;           // PEM of the collector's authority; empty: the system's
  } tracing;
  struct LogSettings {
    std::string level = "info";   // debug, info, warning, error, off
    std::string format = "auto";  // text, json; auto: text where stderr is a terminal, else json
    // which requests get a line: off, notable (those that fail, and each model's slowest 1%), all
    std::string requests = "notable";
  } log;
};

// All keys, in the order of the struct.
const std::vector<OptionKey<ServerOptions>>& OptionKeys();

// Whether a change of the key takes effect without a restart.
bool ChangesWhileServing(const std::string& section_key);

// "section.key" of each that differs.
std::vector<std::string> ChangedKeys(const ServerOptions& from, const ServerOptions& to);

// Whether only this machine reaches a listener there: 127.0.0.0/8, ::1 or localhost.
bool IsLoopback(const std::string& address);

// What must hold between keys. kInvalidArgument names both.
Status CheckOptions(const ServerOptions& options);

// Of models without a model.yaml.
ModelSettings DefaultSettings(const ServerOptions& options);

// Applies a YAML file. Unknown keys are refused with file, line and the nearest known key; so are
// duplicate keys, aliases, several documents and files over 1 MB.
Status ApplyConfigFile(const std::string& path, ServerOptions& options);
Status ApplyConfigText(const std::string& text, const std::string& name, ServerOptions& options);

// Applies variables named ONNXD_SECTION_KEY. Unknown keys of known sections are refused; other
// names that begin with ONNXD_ are left alone (Kubernetes sets ONNXD_SERVICE_HOST beside a Service
// onnxd).
Status ApplyEnvironment(const std::map<std::string, std::string>& variables,
                        ServerOptions& options);

}  // namespace onnxd
