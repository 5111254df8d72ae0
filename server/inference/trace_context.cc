#include "server/inference/trace_context.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "server/inference/random_id.h"

namespace onnxd {
namespace {

constexpr size_t kMostState = 512;

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsId(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7f; });
}

// Of the last hexadecimal digit of the flags.
bool IsOdd(char digit) {
  return std::string_view("13579bdf").find(digit) != std::string_view::npos;
}

}  // namespace

std::optional<TraceContext> ContinueTrace(std::string_view traceparent,
                                          std::string_view tracestate) {
  // version-trace-parent-flags; a later version may go on after another dash.
  constexpr size_t kLength = 2 + 1 + 32 + 1 + 16 + 1 + 2;
  if (traceparent.size() < kLength) return std::nullopt;
  const std::string_view version = traceparent.substr(0, 2), trace = traceparent.substr(3, 32),
                         parent = traceparent.substr(36, 16), flags = traceparent.substr(53, 2);
  if (traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-') {
    return std::nullopt;
  }
  if (!IsHex(version) || version == "ff" || !IsId(trace) || !IsId(parent) || !IsHex(flags)) {
    return std::nullopt;
  }
  if (traceparent.size() > kLength && (version == "00" || traceparent[kLength] != '-')) {
    return std::nullopt;
  }
  TraceContext context{std::string(trace), std::string(parent), RandomId(), "", IsOdd(flags[1])};
  if (tracestate.size() <= kMostState && IsPrintable(tracestate)) context.state = tracestate;
  return context;
}

TraceContext BeginTrace(bool sampled) {
  return {StrCat(RandomId(), RandomId()), "", RandomId(), "", sampled};
}

void RenewSpan(TraceContext& trace) {
  if (!trace.trace_id.empty()) trace.span_id = RandomId();
}

std::string ReturnedTraceParent(const TraceContext& trace) {
  if (trace.trace_id.empty() || (trace.parent_id.empty() && !trace.sampled)) return "";
  return StrCat("00-", trace.trace_id, "-", trace.span_id, trace.sampled ? "-01" : "-00");
}

}  // namespace onnxd
