#include "server/batching/batch_run.h"

#include <algorithm>
#include <mutex>

#include "runtime/base/str_cat.h"
#include "server/batching/rows.h"

namespace onnxd {
namespace {

Result<std::vector<Value>> JoinInputs(std::span<const RequestQueue::Entry> entries,
                                      const TensorMaker& make, int64_t rows) {
  std::vector<Value> joined;
  for (size_t i = 0; i < entries[0].request.inputs.size(); ++i) {
    std::vector<Tensor> parts;
    for (const auto& entry : entries) parts.push_back(entry.request.inputs[i].tensor());
    ONNXD_ASSIGN_OR_RETURN(Tensor whole, JoinRows(parts, make, rows));
    joined.emplace_back(std::move(whole));
  }
  return joined;
}

RunLimits LimitsOf(std::span<const RequestQueue::Entry> entries,
                   std::chrono::nanoseconds yield_every) {
  RunLimits limits;
  limits.yield_every = yield_every;
  if (entries.size() == 1) {
    limits.cancelled = entries[0].request.cancelled.get();
    limits.outputs_into = entries[0].request.outputs_into;
  }
  for (const auto& entry : entries) {
    if (!entry.request.deadline) {
      limits.deadline.reset();
      return limits;
    }
    limits.deadline = limits.deadline ? std::max(*limits.deadline, *entry.request.deadline)
                                      : *entry.request.deadline;
  }
  return limits;
}

bool HasRows(const Value& value, int64_t rows) {
  return value.is_tensor() && value.tensor().shape().rank() > 0 &&
         value.tensor().shape()[0] == rows;
}

// The parts of a request that runs in several batches.
class Parts {
 public:
  Parts(BatchRequest whole, size_t count) : whole_(std::move(whole)), results_(count) {}

  void Finish(size_t part, BatchResult result) {
    {
      std::lock_guard lock(mutex_);
      results_[part] = std::move(result);
      if (++finished_ < results_.size()) return;
    }
    whole_.done(Joined());
  }

 private:
  // No outputs yet. Parts were queued together; they may have run at once, or waited between runs:
  // neither counts as computing.
  BatchResult Times() const {
    BatchResult times{std::vector<Value>(), results_[0]->queue_time, {}};
    std::chrono::nanoseconds sum{0}, end{0};
    for (const auto& part : results_) {
      times.queue_time = std::min(times.queue_time, part->queue_time);
      end = std::max(end, part->queue_time + part->compute_time);
      sum += part->compute_time;
    }
    times.compute_time = std::min(sum, end - times.queue_time);
    return times;
  }

  BatchResult Joined() {
    BatchResult joined = Times();
    for (const auto& result : results_) {
      if (!result->outputs.ok()) {
        joined.outputs = result->outputs.status();
        return joined;
      }
    }
    for (size_t i = 0; i < results_[0]->outputs->size(); ++i) {
      std::vector<Tensor> tensors;
      for (const auto& result : results_) {
        const Value& output = (*result->outputs)[i];
        tensors.push_back(output.is_tensor() ? output.tensor() : Tensor());
      }
      auto whole = JoinRows(tensors);
      if (!whole.ok()) {
        joined.outputs = whole.status();
        return joined;
      }
      joined.outputs->emplace_back(*std::move(whole));
    }
    return joined;
  }

  const BatchRequest whole_;
  std::mutex mutex_;
  size_t finished_ = 0;                              // guarded by mutex_
  std::vector<std::optional<BatchResult>> results_;  // guarded by mutex_ until all have finished
};

}  // namespace

BatchOutputs RunBatch(std::span<const RequestQueue::Entry> entries,
                      const BatchComputation& computation, std::chrono::nanoseconds yield_every,
                      int64_t run_rows) {
  BatchOutputs outputs;
  for (const auto& entry : entries) outputs.rows += std::max<int64_t>(1, entry.request.rows);
  using Clock = std::chrono::steady_clock;
  const auto begin_input = Clock::now();
  std::span<const Value> inputs = entries[0].request.inputs;
  Result<std::vector<Value>> joined = std::vector<Value>();
  run_rows = std::max(run_rows, outputs.rows);
  const bool joins = entries.size() > 1 || run_rows > outputs.rows;
  if (joins) {
    joined = JoinInputs(entries, computation.make_input, run_rows);
    if (!joined.ok()) {
      outputs.status = joined.status();
      return outputs;
    }
    inputs = *joined;
  }
  const auto begin_run = Clock::now();
  auto results = computation.run(inputs, LimitsOf(entries, yield_every));
  const auto begin_output = Clock::now();
  outputs.times = {begin_run - begin_input, begin_output - begin_run, {}};
  if (!results.ok()) {
    outputs.status = results.status();
    return outputs;
  }
  if (!joins) {
    outputs.parts.push_back(*std::move(results));
    return outputs;
  }
  outputs.parts.resize(entries.size());
  for (const Value& result : *results) {
    if (!HasRows(result, run_rows)) {
      outputs.mixes_rows = true;
      outputs.status = Internal(StrCat("an output of ", run_rows, " rows has others"));
      return outputs;
    }
    int64_t begin = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      const int64_t rows = entries[i].request.rows;
      outputs.parts[i].emplace_back(RowsOf(result.tensor(), begin, rows));
      begin += rows;
    }
  }
  outputs.times.output = Clock::now() - begin_output;
  return outputs;
}

std::vector<BatchRequest> SplitRequest(BatchRequest request, int64_t part_rows) {
  const int64_t rows = request.rows, count = (rows + part_rows - 1) / part_rows;
  std::vector<BatchRequest> parts(static_cast<size_t>(count));
  const BatchRequest& whole = request;
  for (int64_t i = 0; i < count; ++i) {
    BatchRequest& part = parts[static_cast<size_t>(i)];
    const int64_t begin = i * part_rows;
    part.rows = std::min(part_rows, rows - begin);
    for (const Value& input : whole.inputs) {
      part.inputs.emplace_back(RowsOf(input.tensor(), begin, part.rows));
    }
    part.shape_key = whole.shape_key;
    part.priority = whole.priority;
    part.deadline = whole.deadline;
    part.cancelled = whole.cancelled;
  }
  const auto joint = std::make_shared<Parts>(std::move(request), parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].done = [joint, i](BatchResult result) { joint->Finish(i, std::move(result)); };
  }
  return parts;
}

}  // namespace onnxd
