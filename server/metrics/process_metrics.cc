#include "server/metrics/process_metrics.h"

#include <malloc.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "runtime/base/file.h"
#include "runtime/base/machine.h"

namespace onnxd {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

prometheus::Gauge& AddGauge(prometheus::Registry& registry, const char* name, const char* help) {
  return BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

struct Stat {
  long threads = 0;
  unsigned long long start = 0;  // clock ticks after the system's
};

// Source: proc(5). The name before the fields may hold spaces and parentheses; ours does not.
Stat ReadStat() {
  Stat stat;
  const File file(std::fopen("/proc/self/stat", "r"), &std::fclose);
  if (file == nullptr) return stat;
  const int got = std::fscanf(file.get(),
                              "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d "
                              "%*d %*d %*d %ld %*d %llu",
                              &stat.threads, &stat.start);
  return got == 2 ? stat : Stat();
}

// Seconds since the epoch.
double SystemStart() {
  const File file(std::fopen("/proc/stat", "r"), &std::fclose);
  char line[256];
  long long seconds = 0;
  while (file != nullptr && std::fgets(line, sizeof(line), file.get()) != nullptr) {
    if (std::sscanf(line, "btime %lld", &seconds) == 1) break;
  }
  return static_cast<double>(seconds);
}

}  // namespace

ProcessMetrics::ProcessMetrics(prometheus::Registry& registry)
    : cpu_(BuildCounter()
               .Name("process_cpu_seconds_total")
               .Help("Processor time used")
               .Register(registry)
               .Add({})),
      resident_(AddGauge(registry, "process_resident_memory_bytes", "Resident memory")),
      virtual_(AddGauge(registry, "process_virtual_memory_bytes", "Virtual memory")),
      descriptors_(AddGauge(registry, "process_open_fds", "Open file descriptors")),
      most_descriptors_(AddGauge(registry, "process_max_fds", "File descriptors that may be open")),
      threads_(AddGauge(registry, "process_threads", "Threads")),
      started_(AddGauge(registry, "process_start_time_seconds", "When the process started")),
      allocated_(BuildGauge()
                     .Name("onnxd_allocator_bytes")
                     .Help("Memory of the C library's allocator: allocated, and free but kept")
                     .Register(registry)
                     .Add({{"state", "allocated"}})),
      free_(BuildGauge()
                .Name("onnxd_allocator_bytes")
                .Help("Memory of the C library's allocator: allocated, and free but kept")
                .Register(registry)
                .Add({{"state", "free"}})) {
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  started_.Set(SystemStart() + static_cast<double>(ReadStat().start) / ticks);
}

void ProcessMetrics::Read() {
  const double used = CpuSeconds() - cpu_.Value();
  if (used > 0) cpu_.Increment(used);
  const File file(std::fopen("/proc/self/statm", "r"), &std::fclose);
  long total = 0, resident = 0;
  if (file != nullptr && std::fscanf(file.get(), "%ld %ld", &total, &resident) == 2) {
    const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
    resident_.Set(static_cast<double>(resident) * page);
    virtual_.Set(static_cast<double>(total) * page);
  }
  const auto names = ListFolder("/proc/self/fd", 1 << 20);
  // One is this look's own.
  if (names.ok()) descriptors_.Set(static_cast<double>(names->size() - 1));
  rlimit most{};
  getrlimit(RLIMIT_NOFILE, &most);
  most_descriptors_.Set(static_cast<double>(most.rlim_cur));
  threads_.Set(static_cast<double>(ReadStat().threads));
  const struct mallinfo2 memory = mallinfo2();
  allocated_.Set(static_cast<double>(memory.uordblks + memory.hblkhd));
  free_.Set(static_cast<double>(memory.fordblks));
}

}  // namespace onnxd
