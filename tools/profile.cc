#include "tools/profile.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using Clock = RunProfile::Clock;

double Milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

std::string OperatorOf(const Node& node) {
  return node.domain.empty() ? node.op_type : StrCat(node.domain, "::", node.op_type);
}

const ProfiledRun& MedianRun(const std::vector<ProfiledRun>& runs) {
  std::vector<const ProfiledRun*> order;
  for (const ProfiledRun& run : runs) order.push_back(&run);
  std::sort(order.begin(), order.end(), [](const ProfiledRun* a, const ProfiledRun* b) {
    return a->end - a->begin < b->end - b->begin;
  });
  return *order[order.size() / 2];
}

nlohmann::json Slice(const std::string& name, const std::string& category, Clock::time_point origin,
                     Clock::time_point begin, Clock::time_point end) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"pid", 1},
          {"tid", 1},
          {"ts", Milliseconds(begin - origin) * 1000},
          {"dur", Milliseconds(end - begin) * 1000}};
}

struct Total {
  double milliseconds = 0;
  int64_t calls = 0;
};

// Time spent in a node itself: less what the nodes of its subgraphs took, whose events lie inside.
void AddOwnTimes(const RunProfile& profile, std::map<std::string, Total>& totals) {
  std::vector<const RunProfile::Event*> open;
  for (const RunProfile::Event& event : profile.events) {
    while (!open.empty() && open.back()->end <= event.begin) open.pop_back();
    const double milliseconds = Milliseconds(event.end - event.begin);
    if (!open.empty()) totals[OperatorOf(*open.back()->node)].milliseconds -= milliseconds;
    Total& total = totals[OperatorOf(*event.node)];
    total.milliseconds += milliseconds;
    ++total.calls;
    open.push_back(&event);
  }
}

}  // namespace

Status WriteChromeTrace(const std::string& path, const std::vector<ProfiledRun>& runs) {
  const ProfiledRun& run = MedianRun(runs);
  nlohmann::json events = nlohmann::json::array();
  events.push_back(Slice("Run", "session", run.begin, run.begin, run.end));
  for (const RunProfile::Event& event : run.profile.events) {
    const std::string op = OperatorOf(*event.node);
    nlohmann::json slice = Slice(event.node->name.empty() ? op : event.node->name, "node",
                                 run.begin, event.begin, event.end);
    slice["args"] = {{"op", op}};
    events.push_back(std::move(slice));
  }
  const nlohmann::json document = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  std::ofstream file(path, std::ios::binary);
  file << document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) return Internal(StrCat("cannot write ", path));
  return Status::Ok();
}

std::string ProfileTable(const std::vector<ProfiledRun>& runs) {
  std::map<std::string, Total> totals;
  double wall = 0;
  for (const ProfiledRun& run : runs) {
    wall += Milliseconds(run.end - run.begin);
    AddOwnTimes(run.profile, totals);
  }
  std::vector<std::pair<std::string, Total>> lines(totals.begin(), totals.end());
  Total between{wall, 0};
  for (const auto& [name, total] : lines) between.milliseconds -= total.milliseconds;
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    return a.second.milliseconds > b.second.milliseconds;
  });
  lines.emplace_back("(between nodes)", between);
  lines.emplace_back("wall time", Total{wall, 0});
  const auto count = static_cast<double>(runs.size());
  std::string text;
  for (const auto& [name, total] : lines) {
    char line[64];
    std::snprintf(line, sizeof(line), "%10.4f ms %5.1f%% %6lld  ", total.milliseconds / count,
                  wall > 0 ? total.milliseconds / wall * 100 : 0,
                  static_cast<long long>(total.calls) / static_cast<long long>(runs.size()));
    text += StrCat(line, name, "\n");
  }
  return text;
}

}  // namespace onnxd
