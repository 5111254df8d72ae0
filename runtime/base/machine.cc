#include "runtime/base/machine.h"

#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

const fs::path kGroups = "/sys/fs/cgroup";

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int64_t> Number(const std::string& text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && value > 0 ? std::optional(value) : std::nullopt;
}

// The process's path in the hierarchy of a version 1 controller, or of version 2 ("").
std::string GroupPath(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find("," + controller + ",") != std::string::npos) {
      return line.substr(second + 1);
    }
  }
  return "/";
}

// The least of `read` from the process's group up to the root of that hierarchy.
std::optional<int64_t> LeastUpwards(const fs::path& root, const std::string& group,
                                    const std::function<std::optional<int64_t>(fs::path)>& read) {
  std::optional<int64_t> least;
  fs::path relative = fs::path(group).relative_path();
  while (true) {
    const auto limit = read(root / relative);
    if (limit) least = std::min(least.value_or(*limit), *limit);
    if (relative.empty()) return least;
    relative = relative.parent_path();
  }
}

std::optional<int64_t> Least(std::optional<int64_t> a, std::optional<int64_t> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

// Processors, rounded up, of "max 100000" or "150000 100000".
std::optional<int64_t> Quota(const std::string& line) {
  const auto quota = Number(line),
             period = Number(line.substr(std::min(line.size(), line.find(' ') + 1)));
  if (!quota || !period) return std::nullopt;
  return (*quota + *period - 1) / *period;
}

// Of the processors in `set`, those that share no core; all where the system does not tell.
int64_t Cores(const cpu_set_t& set) {
  std::set<std::string> cores;
  int64_t untold = 0;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &set)) continue;
    const std::string siblings =
        FirstLine(StrCat("/sys/devices/system/cpu/cpu", i, "/topology/thread_siblings_list"));
    if (siblings.empty()) {
      ++untold;
    } else {
      cores.insert(siblings);
    }
  }
  return static_cast<int64_t>(cores.size()) + untold;
}

}  // namespace

int AvailableCores() {
  cpu_set_t set;
  const int64_t processors = AvailableProcessors();
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return static_cast<int>(processors);
  return static_cast<int>(std::clamp<int64_t>(Cores(set), 1, processors));
}

int AvailableProcessors() {
  cpu_set_t set;
  int64_t processors = std::max(1u, std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    processors = std::min<int64_t>(processors, std::max(1, CPU_COUNT(&set)));
  }
  const auto unified = LeastUpwards(kGroups, GroupPath(""), [](const fs::path& group) {
    return Quota(FirstLine(group / "cpu.max"));
  });
  const auto separate = LeastUpwards(kGroups / "cpu", GroupPath("cpu"), [](const fs::path& group) {
    return Quota(FirstLine(group / "cpu.cfs_quota_us") + " " +
                 FirstLine(group / "cpu.cfs_period_us"));
  });
  return static_cast<int>(std::min(processors, Least(unified, separate).value_or(processors)));
}

int64_t AvailableMemory() {
  const int64_t machine = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  const auto unified = LeastUpwards(kGroups, GroupPath(""), [](const fs::path& group) {
    return Number(FirstLine(group / "memory.max"));
  });
  const auto separate = LeastUpwards(
      kGroups / "memory", GroupPath("memory"),
      [](const fs::path& group) { return Number(FirstLine(group / "memory.limit_in_bytes")); });
  return std::min(machine, Least(unified, separate).value_or(machine));
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void ReturnFreedMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace onnxd
