#include "server/metrics/request_log.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// The share of requests that are slow, how fast the pace follows, and after how many it is known.
constexpr double kSlowShare = 0.01, kGain = 0.05;
constexpr int64_t kKnownAfter = 1000;
constexpr size_t kMostModels = 4096;

}  // namespace

double Milliseconds(RequestRecord::Duration duration) {
  return std::round(std::chrono::duration<double, std::micro>(duration).count()) / 1e3;
}

std::string LogLine(const RequestRecord& record) {
  return StrCat(record.protocol == Protocol::kHttp ? "REST" : "gRPC", " model '", record.model,
                "' version '", record.version, "': ", StatusCodeName(record.code), " in ",
                Milliseconds(record.whole), " ms (read ", Milliseconds(record.read), ", queue ",
                Milliseconds(record.queue), ", compute ", Milliseconds(record.compute),
                "), request ", record.id, " of ", record.client,
                record.trace_id.empty() ? "" : StrCat(", trace ", record.trace_id),
                record.error.empty() ? "" : StrCat(": ", record.error.substr(0, 256)));
}

// A stochastic estimate: in balance one in a hundred is above it.
bool RequestLog::IsSlow(const RequestRecord& record) {
  if (paces_.size() >= kMostModels && !paces_.contains(record.model)) paces_.clear();
  Pace& pace = paces_[record.model];
  const double seconds = std::chrono::duration<double>(record.whole).count();
  if (pace.count++ == 0) pace.seconds = seconds;
  const bool above = seconds > pace.seconds;
  pace.seconds *= above ? 1 + kGain * (1 - kSlowShare) : 1 - kGain * kSlowShare;
  return above && pace.count > kKnownAfter;
}

bool RequestLog::MayWriteLine(Clock::time_point now) {
  const int64_t second =
      std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  if (second != second_) {
    if (left_out_ > 0) LogWarning(StrCat(left_out_, " lines about requests were left out"));
    second_ = second;
    lines_ = left_out_ = 0;
  }
  if (lines_ < options_.lines_per_second) return ++lines_ > 0;
  ++left_out_;
  return false;
}

void RequestLog::Keep(const RequestRecord& record, Clock::time_point now) {
  const auto slower = [](const Kept& a, const Kept& b) { return a.record.whole > b.record.whole; };
  const auto oldest = now - options_.keep;
  const bool failed = record.code != StatusCode::kOk;
  const bool slow = slowest_.size() < options_.kept ||
                    record.whole > slowest_.front().record.whole || slowest_.front().at < oldest;
  if (!failed && !slow) return;
  Kept kept{now, record};
  kept.record.ended = std::chrono::system_clock::now();
  if (failed) {
    failed_.push_front(kept);
    if (failed_.size() > options_.kept) failed_.pop_back();
  }
  if (!slow) return;
  std::erase_if(slowest_, [&](const Kept& entry) { return entry.at < oldest; });
  std::make_heap(slowest_.begin(), slowest_.end(), slower);
  slowest_.push_back(std::move(kept));
  std::push_heap(slowest_.begin(), slowest_.end(), slower);
  if (slowest_.size() <= options_.kept) return;
  std::pop_heap(slowest_.begin(), slowest_.end(), slower);
  slowest_.pop_back();
}

void RequestLog::Note(const RequestRecord& record) {
  const auto now = Clock::now();
  const Lines lines = lines_wanted_.load(std::memory_order_relaxed);
  std::string line;
  {
    std::lock_guard lock(mutex_);
    const bool failed = record.code != StatusCode::kOk;
    const bool slow = !failed && IsSlow(record);
    const bool wanted = lines == Lines::kAll || (lines == Lines::kNotable && (failed || slow));
    if (wanted && MayWriteLine(now)) line = LogLine(record);
    Keep(record, now);
  }
  if (!line.empty()) LogInfo(line);
}

std::vector<RequestRecord> RequestLog::Slowest() const {
  const auto oldest = Clock::now() - options_.keep;
  std::vector<RequestRecord> records;
  {
    std::lock_guard lock(mutex_);
    for (const Kept& kept : slowest_) {
      if (kept.at >= oldest) records.push_back(kept.record);
    }
  }
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.whole > b.whole; });
  return records;
}

std::vector<RequestRecord> RequestLog::Failed() const {
  const auto oldest = Clock::now() - options_.keep;
  std::vector<RequestRecord> records;
  std::lock_guard lock(mutex_);
  for (const Kept& kept : failed_) {
    if (kept.at >= oldest) records.push_back(kept.record);
  }
  return records;
}

}  // namespace onnxd
