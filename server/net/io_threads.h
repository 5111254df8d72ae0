// The I/O threads. Each runs an io_context of its own, so that what belongs to one connection runs
// on one thread, a piece after the other: no lock and no strand guards it.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace onnxd {

class IoThreads {
 public:
  // A connection's place on its thread, which is counted until the last copy goes.
  using Seat = std::shared_ptr<void>;
  struct Place {
    boost::asio::io_context& context;
    Seat seat;
  };

  explicit IoThreads(int threads);
  // Stops and joins; handlers that have not run are dropped.
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  // Of a thread with the fewest seats taken. Any thread.
  Place Take();
  // Of the first thread: for what has no connection.
  boost::asio::io_context& context() { return loops_[0]->context; }
  // Throws std::system_error where no more threads may be started.
  void Start();
  void Stop();
  // Runs work that takes milliseconds on one of as many other threads. May throw std::bad_alloc.
  void PostLong(std::function<void()> work);
  // Runs `work` on each thread.
  void PostToAll(const std::function<void()>& work);
  int count() const { return static_cast<int>(loops_.size()); }
  // Calls `revive` on one of the threads whenever work was lost there for want of memory: whoever
  // always has something under way sees to it that it still has. Before Start.
  void OnLostWork(std::function<void()> revive) { revive_.push_back(std::move(revive)); }

 private:
  struct Loop {
    boost::asio::io_context context{1};  // one thread runs it
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{
        context.get_executor()};
    std::shared_ptr<std::atomic<int64_t>> seats = std::make_shared<std::atomic<int64_t>>(0);
    std::thread thread;
  };
  void Work(Loop& loop);

  std::vector<std::unique_ptr<Loop>> loops_;
  boost::asio::io_context long_work_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> more_long_work_{
      long_work_.get_executor()};
  std::vector<std::thread> long_threads_;
  std::vector<std::function<void()>> revive_;
};

}  // namespace onnxd
