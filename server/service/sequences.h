// Sequences: the state that stateful models keep from one request of a sequence to the next.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/inference/sequence_control.h"
#include "server/models/model_version.h"

namespace onnxd {

// Any thread. Requests of one sequence have their turn one after the other, in the order they came,
// whatever their priority; those of different sequences have nothing to do with each other, and may
// share runs. A sequence stays with the version that began it. One that nobody asked for its
// model's `idle_timeout_ms` is over, its state gone.
class Sequences {
 public:
  Sequences() = default;
  ~Sequences();
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  class Turn;
  // Called once, on the thread of Enter or of the turn before.
  using Begin = std::function<void(Result<std::unique_ptr<Turn>>)>;
  // For a request that came to `version`. kInvalidArgument without an id, or where a sequence does
  // not begin and was never begun or is over; kUnavailable beyond `queue_requests` of one sequence
  // and `max_sequences` of a model.
  void Enter(std::shared_ptr<const ModelVersion> version, const SequenceControl& control,
             Begin begin);

  // Of the model that are not over.
  int64_t Count(const std::string& model) const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  using Key = std::pair<std::string, SequenceControl::Id>;  // model
  struct Waiting {
    std::shared_ptr<const ModelVersion> version;
    SequenceControl control;
    Begin begin;
  };
  struct Sequence {
    std::shared_ptr<const ModelVersion> version;  // null: it has not begun, or is over
    std::vector<Value> states;                    // empty: it has just begun
    bool busy = false;                            // a request has its turn
    bool advancing = false;                       // a thread looks who is next
    bool counted = false;                         // in count_: it is not over
    std::deque<Waiting> waiting;
    Time last_used{};
  };
  using Entries = std::map<Key, Sequence>;

  // With mutex_ held.
  Status Admit(const Key& key, const Waiting& waiting);
  void DropIdle(Time now);
  void DropIfOver(Entries::iterator entry);
  void Uncount(Entries::iterator entry);
  // Without: the next begin, until one has its turn or none waits.
  void Advance(const Key& key);
  void Expire();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Entries entries_;                       // guarded by mutex_
  std::map<std::string, int64_t> count_;  // by model, guarded by mutex_
  bool stopping_ = false;                 // guarded by mutex_
  std::thread expiry_;                    // from the first sequence on
};

// One request's, until it is gone.
class Sequences::Turn {
 public:
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  const std::shared_ptr<const ModelVersion>& version() const { return version_; }
  // Another load of the same version, with its session in memory.
  void SetVersion(std::shared_ptr<const ModelVersion> version) { version_ = std::move(version); }
  const SequenceControl& control() const { return control_; }
  // What the request before left; empty at the beginning.
  const std::vector<Value>& states() const { return states_; }
  // What the next one finds. Without it, it finds what this one did.
  void SetStates(std::vector<Value> states) {
    states_ = std::move(states);
    succeeded_ = true;
  }
  // The sequence is as it is behind this turn: before the answer is given. The next begins here
  // once the turn is gone.
  void End();

 private:
  friend class Sequences;
  Turn(Sequences& owner, Key key, SequenceControl control,
       std::shared_ptr<const ModelVersion> version, std::vector<Value> states)
      : owner_(owner),
        key_(std::move(key)),
        control_(std::move(control)),
        version_(std::move(version)),
        states_(std::move(states)) {}

  Sequences& owner_;
  const Key key_;
  const SequenceControl control_;
  std::shared_ptr<const ModelVersion> version_;
  std::vector<Value> states_;
  bool succeeded_ = false, ended_ = false;
};

}  // namespace onnxd
