// What this process may use of the machine: the limits of its control group, else all there is.
#pragma once

#include <cstdint>

namespace onnxd {

// Processors by affinity and by the control group's quota (cpu.max, cpu.cfs_quota_us), at least 1.
int AvailableProcessors();

// The same, but processors that share a core's units (hyper-threads) count as one: threads that
// compute alike gain nothing from the second. At least 1.
int AvailableCores();

// Bytes of memory: the least limit from the process's control group upwards (memory.max,
// memory.limit_in_bytes), else the machine's.
int64_t AvailableMemory();

// Seconds of processors that all threads of this process have used.
double CpuSeconds();

// Gives the system what the C library keeps of freed memory. Takes some ms, in which other threads'
// allocations wait: after something large has been freed.
void ReturnFreedMemory();

}  // namespace onnxd
