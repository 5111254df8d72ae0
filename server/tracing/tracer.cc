#include "server/tracing/tracer.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kMostModels = 4096;

Status Check(const TraceChanges& changes) {
  if (changes.rate && *changes.rate < 1) {
    return InvalidArgument(StrCat("trace_rate must be at least 1, not ", *changes.rate));
  }
  if (changes.count && *changes.count < -1) {
    return InvalidArgument(StrCat("trace_count must be at least -1, not ", *changes.count));
  }
  return Status::Ok();
}

}  // namespace

bool Tracer::IsNext(Counted& of) { return of.requests++ % of.settings.rate == 0; }

TraceContext Tracer::Begin(std::string_view traceparent, std::string_view tracestate) {
  if (auto trace = ContinueTrace(traceparent, tracestate)) return *std::move(trace);
  if (exporter_ == nullptr) return {};
  std::lock_guard lock(mutex_);
  return BeginTrace(general_.settings.on && IsNext(general_));
}

bool Tracer::Records(const TraceContext& trace, const std::string& model) {
  if (exporter_ == nullptr || trace.trace_id.empty()) return false;
  std::lock_guard lock(mutex_);
  const auto own = by_model_.find(model);
  Counted& of = own == by_model_.end() ? general_ : own->second;
  if (!of.settings.on || of.settings.count == 0) return false;
  const bool decides = own != by_model_.end() && trace.parent_id.empty();
  if (!(decides ? IsNext(of) : trace.sampled)) return false;
  if (of.settings.count > 0) --of.settings.count;
  return true;
}

TraceSettings Tracer::Settings(const std::string& model) const {
  std::lock_guard lock(mutex_);
  const auto own = by_model_.find(model);
  TraceSettings settings = own == by_model_.end() ? general_.settings : own->second.settings;
  settings.on = settings.on && exporter_ != nullptr;
  return settings;
}

Status Tracer::Change(const std::string& model, const TraceChanges& changes) {
  if (exporter_ == nullptr) {
    return FailedPrecondition("spans go nowhere: 'tracing.endpoint' is not configured");
  }
  ONNXD_RETURN_IF_ERROR(Check(changes));
  std::lock_guard lock(mutex_);
  if (!model.empty() && by_model_.size() >= kMostModels && !by_model_.contains(model)) {
    return ResourceExhausted(StrCat(kMostModels, " models have trace settings of their own"));
  }
  Counted& of = model.empty() ? general_ : by_model_.try_emplace(model, general_).first->second;
  of.settings.on = changes.on.value_or(of.settings.on);
  of.settings.rate = changes.rate.value_or(of.settings.rate);
  of.settings.count = changes.count.value_or(of.settings.count);
  return Status::Ok();
}

}  // namespace onnxd
