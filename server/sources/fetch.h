// Fetching over HTTP, from servers that models come from.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace onnxd {

struct FetchRequest {
  std::string url;  // whole, its path and query encoded
  std::string method = "GET";
  std::map<std::string, std::string> headers;
  std::string body;
  bool is_local = false;  // of this machine's own services: nobody waits for them
};

struct FetchResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in small letters
  std::string body;
  // Empty where there is none.
  std::string Header(const std::string& name) const;
};

// One thread, but for Abort. Follows redirections, up to ten, and gives what authorises a request
// to no other host than its own; takes proxies from the environment (https_proxy, http_proxy,
// no_proxy). Errors of the network, 408, 429 and 5xx are tried again, up to five times, ever later.
class Fetcher {
 public:
  // `cancelled`: from then on nothing is begun or tried again; may be null.
  explicit Fetcher(const std::atomic<bool>* cancelled) : cancelled_(cancelled) {}

  // A document, of 64 MB at most. kUnavailable, kCancelled, or kInvalidArgument for what is no URL;
  // what the server answered is no error.
  Result<FetchResponse> Fetch(const FetchRequest& request) const;

  // Where bytes go: `begin` is told the status and headers, and whether it failed; then `bytes`
  // comes, in parts, of a response of 2xx; that of another is the body.
  struct Sink {
    std::function<Status(const FetchResponse&)> begin;
    std::function<Status(std::string_view)> bytes;
  };
  // What a machine's own service, which is there at once or not at all, answers with 200; empty:
  // something else, or nothing within 2 s.
  std::string AskMachine(FetchRequest request) const;

  // From another thread: what is under way ends soon.
  void Abort() const;

  // Once: who streams knows where to go on.
  Result<FetchResponse> Stream(const FetchRequest& request, const Sink& sink) const;

  // False: cancelled meanwhile. Before attempt `attempt`, from 1.
  bool Pause(int attempt) const;
  bool cancelled() const { return cancelled_ != nullptr && cancelled_->load(); }
  static constexpr int kAttempts = 5;

 private:
  class Exchange;

  const std::atomic<bool>* const cancelled_;
  mutable std::mutex mutex_;
  mutable std::function<void()> abort_;  // what is under way; guarded by mutex_
};

// kNotFound, kPermissionDenied, kUnavailable ..., with what the server said; requires that it is no
// 2xx.
Status StatusOf(const FetchResponse& response, const std::string& what);

// Whether to try again may help.
bool IsPassing(int http_status);

}  // namespace onnxd
