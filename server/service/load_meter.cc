#include "server/service/load_meter.h"

#include <algorithm>
#include <utility>

namespace onnxd {
namespace {

constexpr auto kKept = std::chrono::milliseconds(100);
constexpr auto kLeastMean = std::chrono::seconds(1);

}  // namespace

LoadMeter::LoadMeter(int processors, Read read, Time now)
    : processors_(std::max(1, processors)),
      read_(std::move(read)),
      before_{now, {}},
      since_{now, {}} {}

LoadReport LoadMeter::Report(Time now) {
  std::lock_guard lock(mutex_);
  if (reported_ != Time::min() && now - reported_ < kKept) return report_;
  const Reading reading = read_();
  const Reading& before = before_.reading;
  const double seconds = std::max(1e-3, std::chrono::duration<double>(now - before_.at).count());
  report_.cpu_utilization = (reading.cpu_seconds - before.cpu_seconds) / seconds / processors_;
  report_.rps_fractional = static_cast<double>(reading.answered - before.answered) / seconds;
  report_.eps = static_cast<double>(reading.failed - before.failed) / seconds;
  report_.mem_utilization = reading.mem_utilization;
  report_.application_utilization = reading.application_utilization;
  report_.queued_requests = static_cast<double>(reading.queued);
  reported_ = now;
  if (now - since_.at >= kLeastMean) before_ = std::exchange(since_, {now, reading});
  return report_;
}

}  // namespace onnxd
