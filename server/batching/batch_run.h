// One run for several requests, and one request in several runs.
#pragma once

#include <cstdint>
#include <vector>

#include "server/batching/request_queue.h"
#include "server/batching/scheduler.h"

namespace onnxd {

struct BatchOutputs {
  Status status;
  int64_t rows = 0;                       // that ran together
  std::vector<std::vector<Value>> parts;  // of each request
  RunTimes times;
  bool mixes_rows = false;  // an output has not one row for each row of the inputs: kInternal
};

// Requires requests; several only where all have rows and equal shape keys. The run ends early when
// the last of their deadlines has passed, or the client of a lone request is gone. `yield_every`:
// as RunLimits has it. `run_rows`, where they have fewer rows: so many run, of which those that are
// too many repeat the last.
BatchOutputs RunBatch(std::span<const RequestQueue::Entry> entries,
                      const BatchComputation& computation, std::chrono::nanoseconds yield_every,
                      int64_t run_rows = 0);

// Requests of at most `part_rows` rows each; the `done` of the whole is called once all of them
// have, with joined outputs or the first failure, the wait of the first part and the time of all,
// where they ran at once that of the longest.
std::vector<BatchRequest> SplitRequest(BatchRequest request, int64_t part_rows);

}  // namespace onnxd
