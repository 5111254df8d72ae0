// Status and Result<T>: how every function of this project that can fail says so.
//
// Codes carry gRPC's own numbers (https://grpc.io/docs/guides/status-codes/), so the gRPC frontend
// casts them and the REST frontend maps them through one table. No exception crosses a folder;
// code that calls a throwing library converts at that edge.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace onnxd {

enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// The canonical upper-case name, for example "INVALID_ARGUMENT".
std::string_view StatusCodeName(StatusCode code);

// Success is one null pointer; copying a failure copies a reference. Thread-compatible.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : failure_(std::make_shared<const Failure>(Failure{code, std::move(message)})) {}

  static Status Ok() { return Status(); }

  bool ok() const { return failure_ == nullptr; }
  StatusCode code() const { return failure_ ? failure_->code : StatusCode::kOk; }
  std::string_view message() const { return failure_ ? std::string_view(failure_->message) : ""; }

  // "context: message" with the same code; success stays success.
  Status WithContext(std::string_view context) const;

  // "INVALID_ARGUMENT: message", or "OK".
  std::string ToString() const;

 private:
  struct Failure {
    StatusCode code;
    std::string message;
  };
  std::shared_ptr<const Failure> failure_;
};

inline Status Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
inline Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status DeadlineExceeded(std::string m) {
  return {StatusCode::kDeadlineExceeded, std::move(m)};
}
inline Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status ResourceExhausted(std::string m) {
  return {StatusCode::kResourceExhausted, std::move(m)};
}
inline Status FailedPrecondition(std::string m) {
  return {StatusCode::kFailedPrecondition, std::move(m)};
}
inline Status PermissionDenied(std::string m) {
  return {StatusCode::kPermissionDenied, std::move(m)};
}
inline Status Unauthenticated(std::string m) {
  return {StatusCode::kUnauthenticated, std::move(m)};
}
inline Status Aborted(std::string m) { return {StatusCode::kAborted, std::move(m)}; }
inline Status Unimplemented(std::string m) { return {StatusCode::kUnimplemented, std::move(m)}; }
inline Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }
inline Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }

// A value, or the Status that says why there is none. value() on a failure is our own bug.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(Status status) : state_(std::move(status)) {}  // NOLINT: conversions are the point
  Result(T value) : state_(std::move(value)) {}         // NOLINT

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status::Ok() : std::get<Status>(state_); }
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::get<T>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<Status, T> state_;
};

}  // namespace onnxd

#define ONNXD_CONCAT_INNER(a, b) a##b
#define ONNXD_CONCAT(a, b) ONNXD_CONCAT_INNER(a, b)

#define ONNXD_RETURN_IF_ERROR(expression)                                                     \
  do {                                                                                        \
    if (::onnxd::Status onnxd_status = (expression); !onnxd_status.ok()) return onnxd_status; \
  } while (false)

// ONNXD_ASSIGN_OR_RETURN(auto x, F()): declares or assigns x, or returns F's failure.
#define ONNXD_ASSIGN_OR_RETURN(declaration, expression) \
  ONNXD_ASSIGN_OR_RETURN_INNER(ONNXD_CONCAT(onnxd_result_, __LINE__), declaration, expression)
#define ONNXD_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                         \
  if (!result.ok()) return result.status();                           \
  declaration = std::move(result).value()
