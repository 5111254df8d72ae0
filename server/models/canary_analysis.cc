#include "server/models/canary_analysis.h"

#include <algorithm>

#include "runtime/base/lock_briefly.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr double kSlowShare = 0.05;  // of the baseline's answers, by definition

double Microseconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

}  // namespace

const char* RollbackCauseName(RollbackCause cause) {
  switch (cause) {
    case RollbackCause::kErrors:
      return "errors";
    case RollbackCause::kLatency:
      return "latency";
    case RollbackCause::kMismatch:
      return "mismatch";
    case RollbackCause::kRequest:
      return "request";
  }
  return "";
}

void CanaryAnalysis::Pace::Add(std::chrono::nanoseconds duration) {
  last_[count_++ % kKept] = duration;
  if (count_ % kEnough != 0) return;
  auto sorted = last_;
  const auto size = static_cast<std::ptrdiff_t>(std::min(count_, kKept));
  const auto place = sorted.begin() + size * 95 / 100;
  std::nth_element(sorted.begin(), place, sorted.begin() + size);
  most_ = *place;
}

void CanaryAnalysis::Follow(Plan plan) {
  std::lock_guard lock(mutex_);
  if (plan.baseline != plan_.baseline) {
    records_.erase(plan_.baseline);
    pace_ = {};
  }
  plan_ = std::move(plan);
  std::erase_if(records_, [this](const auto& record) {
    return record.first != plan_.baseline && record.first != plan_.shadow &&
           !plan_.canaries.contains(record.first);
  });
  active_ = !plan_.baseline.empty() && !plan_.canaries.empty() &&
            (plan_.settings.error_percent > 0 || plan_.settings.latency_percent > 0);
}

void CanaryAnalysis::Forget(const std::string& version) {
  std::lock_guard lock(mutex_);
  records_.erase(version);
  if (version == plan_.baseline) pace_ = {};
}

void CanaryAnalysis::Note(const std::string& version, AnswerKind kind,
                          std::chrono::nanoseconds duration) {
  std::optional<Verdict> verdict;
  {
    const auto lock = LockBriefly(mutex_);
    const bool is_baseline = version == plan_.baseline;
    if (!is_baseline && !plan_.canaries.contains(version)) return;
    Record& record = records_[version];
    record.failed_or_refused.Add(kind != AnswerKind::kAnswered);
    if (kind != AnswerKind::kRefused) record.failed.Add(kind != AnswerKind::kAnswered);
    if (kind == AnswerKind::kAnswered) {
      if (is_baseline) pace_.Add(duration);
      if (!is_baseline && pace_.most()) {
        record.slow.Add(duration * 100 > *pace_.most() * plan_.settings.latency_percent);
      }
    }
    if (is_baseline || record.condemned) return;
    verdict = Judge(version, record);
    record.condemned = verdict.has_value();
  }
  if (verdict) on_verdict_(*verdict);
}

void CanaryAnalysis::NoteComparison(const std::string& version, bool same) {
  std::optional<Verdict> verdict;
  {
    std::lock_guard lock(mutex_);
    if (version != plan_.shadow) return;
    Record& record = records_[version];
    record.different.Add(!same);
    if (record.condemned) return;
    verdict = JudgeShadow(version, record);
    record.condemned = verdict.has_value();
  }
  if (verdict) on_verdict_(*verdict);
}

std::optional<CanaryAnalysis::Verdict> CanaryAnalysis::JudgeShadow(const std::string& version,
                                                                   const Record& record) const {
  const int64_t percent = plan_.settings.mismatch_percent;
  for (const AnswerCount count : {record.different.recent(), record.different.all()}) {
    if (percent == 0 || !IsEnough(count)) continue;
    if (LeastRate(count) <= static_cast<double>(percent) / 100) continue;
    return Verdict{version, RollbackCause::kMismatch,
                   StrCat(count.with, " of its last ", count.all, " answers to copies differ")};
  }
  return std::nullopt;
}

std::optional<CanaryAnalysis::Verdict> CanaryAnalysis::Judge(const std::string& version,
                                                             const Record& record) const {
  const RollbackSettings& settings = plan_.settings;
  const auto window =
      plan_.differing.contains(version) ? &Record::failed_or_refused : &Record::failed;
  const AnswerWindow& own = record.*window;
  const auto found = records_.find(plan_.baseline);
  const AnswerWindow baseline = found == records_.end() ? AnswerWindow() : found->second.*window;
  // What fails for both fails for another reason, however lately it began.
  const AnswerCount theirs =
      baseline.recent().rate() > baseline.all().rate() ? baseline.recent() : baseline.all();
  const double most = theirs.rate() + static_cast<double>(settings.error_percent) / 100;
  for (const AnswerCount count : {own.recent(), own.all()}) {
    if (settings.error_percent == 0 || !IsEnough(count) || LeastRate(count) <= most) continue;
    return Verdict{version, RollbackCause::kErrors,
                   StrCat(count.with, " of its last ", count.all, " requests failed, of version ",
                          plan_.baseline, "'s ", theirs.with, " of ", theirs.all)};
  }
  for (const AnswerCount count : {record.slow.recent(), record.slow.all()}) {
    if (settings.latency_percent == 0 || !IsEnough(count) || LeastRate(count) <= kSlowShare)
      continue;
    return Verdict{version, RollbackCause::kLatency,
                   StrCat(count.with, " of its last ", count.all, " answers took over ",
                          settings.latency_percent, "% of the ", Microseconds(*pace_.most()),
                          " us that 95% of version ", plan_.baseline, "'s keep")};
  }
  return std::nullopt;
}

}  // namespace onnxd
