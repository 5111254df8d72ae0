#include "server/service/ensemble_run.h"

#include <mutex>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

class EnsembleRun : public std::enable_shared_from_this<EnsembleRun> {
 public:
  EnsembleRun(std::shared_ptr<const Ensemble> ensemble, RunStep run, StepDone done)
      : ensemble_(std::move(ensemble)),
        run_(std::move(run)),
        done_(std::move(done)),
        values_(ensemble_->tensors),
        takers_(ensemble_->tensors),
        lacks_(ensemble_->steps.size()) {
    for (size_t i = 0; i < ensemble_->steps.size(); ++i) {
      for (const auto& [name, tensor] : ensemble_->steps[i].inputs) {
        ++takers_[tensor];
        ++lacks_[i];
      }
    }
    for (const size_t output : ensemble_->outputs) ++takers_[output];
  }

  void Begin(std::vector<Value> inputs) {
    {
      std::lock_guard lock(mutex_);
      for (size_t i = 0; i < inputs.size(); ++i) Give(ensemble_->inputs[i], std::move(inputs[i]));
    }
    Advance();
  }

 private:
  // With mutex_ held: makes ready who waited for that tensor alone.
  void Give(size_t tensor, Value value) {
    values_[tensor] = std::move(value);
    for (size_t i = 0; i < ensemble_->steps.size(); ++i) {
      for (const auto& [name, taken] : ensemble_->steps[i].inputs) {
        if (taken == tensor && --lacks_[i] == 0) ready_.push_back(i);
      }
    }
  }

  // With mutex_ held.
  Value Take(size_t tensor) {
    return --takers_[tensor] == 0 ? std::move(values_[tensor]) : values_[tensor];
  }

  // Starts what is ready. One thread at a time: a step that runs here and now only notes what it
  // made, so that the stack does not grow with the steps.
  void Advance() {
    std::unique_lock lock(mutex_);
    if (advancing_) return;
    advancing_ = true;
    while (!ready_.empty() && failure_.ok()) {
      const size_t index = ready_.back();
      ready_.pop_back();
      const Ensemble::Step& step = ensemble_->steps[index];
      std::vector<NamedValue> inputs;
      std::vector<std::string> outputs;
      for (const auto& [name, tensor] : step.inputs) inputs.push_back({name, Take(tensor)});
      for (const auto& [name, tensor] : step.outputs) outputs.push_back(name);
      ++running_;
      lock.unlock();
      run_(step, std::move(inputs), std::move(outputs),
           [self = shared_from_this(), index](StepResult result) {
             self->Note(index, std::move(result));
           });
      lock.lock();
    }
    advancing_ = false;
    if (running_ > 0 || finished_) return;
    finished_ = true;
    lock.unlock();
    Finish();
  }

  void Note(size_t index, StepResult result) {
    const Ensemble::Step& step = ensemble_->steps[index];
    {
      std::lock_guard lock(mutex_);
      --running_;
      times_.queue_time += result.queue_time;
      times_.compute_time += result.compute_time;
      if (!result.outputs.ok()) {
        if (failure_.ok()) {
          failure_ = result.outputs.status().WithContext(StrCat("step ", index + 1));
        }
      } else {
        for (size_t i = 0; i < step.outputs.size(); ++i) {
          const size_t tensor = step.outputs[i].second;
          if (takers_[tensor] > 0) Give(tensor, std::move((*result.outputs)[i]));
        }
      }
    }
    Advance();
  }

  // Nobody else is here any more.
  void Finish() {
    if (!failure_.ok()) {
      times_.outputs = failure_;
    } else {
      std::vector<Value> outputs;
      for (const size_t tensor : ensemble_->outputs) outputs.push_back(Take(tensor));
      times_.outputs = std::move(outputs);
    }
    done_(std::move(times_));
  }

  const std::shared_ptr<const Ensemble> ensemble_;
  const RunStep run_;
  const StepDone done_;
  std::mutex mutex_;
  // All below is guarded by mutex_.
  std::vector<Value> values_;   // of each tensor, while somebody will take it
  std::vector<size_t> takers_;  // of each tensor, that have not taken it yet
  std::vector<size_t> lacks_;   // inputs of each step that are not there yet
  std::vector<size_t> ready_;
  size_t running_ = 0;
  bool advancing_ = false, finished_ = false;
  Status failure_;
  StepResult times_{std::vector<Value>()};
};

}  // namespace

void RunEnsemble(std::shared_ptr<const Ensemble> ensemble, std::vector<Value> inputs, RunStep run,
                 StepDone done) {
  std::make_shared<EnsembleRun>(std::move(ensemble), std::move(run), std::move(done))
      ->Begin(std::move(inputs));
}

}  // namespace onnxd
